"""Child Python processes with this process's import path."""

import os
import sys
from pathlib import Path

from playground_folder import place


def environment(**more: str) -> dict[str, str]:
    """The environment of a child that imports from the same folders; `more` is added."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    folder = place.marked()
    ours = {place.SETTING: str(folder)} if folder else {}
    return {**os.environ, "PYTHONPATH": path, **ours, **more}
