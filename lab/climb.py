"""The old name of lab.course.ladder, kept for a release."""

from lab.course.ladder import LADDERS

__all__ = ["LADDERS"]
