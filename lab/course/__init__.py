"""What only the chapters use: exercises with their judges, and ladders of kernel versions."""

from lab.course.exercise import judge

__all__ = ["judge"]
