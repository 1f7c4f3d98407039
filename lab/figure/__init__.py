"""The lab's figures and what they share: style, grid and the line of a measured copy."""

from lab.style.drawing import COPY_LINE, finish, grid, short, style

__all__ = ["COPY_LINE", "finish", "grid", "short", "style"]
