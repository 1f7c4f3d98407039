"""Follow a kernel's files as they are saved: lab.live, and `python -m lab watch` in a terminal."""
