"""What the chapters alone use: exercises and their judges, and the ladders that they climb."""

from lab.course.exercise import judge

__all__ = ["judge"]
