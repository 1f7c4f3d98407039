"""The old name of lab.course.exercise, kept for a release."""

import warnings

from lab.course.exercise import judge


def __getattr__(name: str) -> object:
    if name == "check":
        message = "lab.exercise.check is now called judge: from lab.course import judge"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return judge
    raise AttributeError(f"module 'lab.exercise' has no attribute {name!r}")
