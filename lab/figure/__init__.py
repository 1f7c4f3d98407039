"""What the lab draws, and what every drawing shares: style, grid and the line of a copy."""

from lab.style.drawing import COPY_LINE, finish, grid, short, style

__all__ = ["COPY_LINE", "finish", "grid", "short", "style"]
