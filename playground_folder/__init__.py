"""Which folder's kernels/, notebooks/ and reference.py a process means.

In a clone they are the clone's. Installed from a wheel they are those of the folder that
`kernel-playground new` made and in which the process works: see `playground_folder.place`. With
`install` these names are imported from there, in scripts and notebooks of its subfolders, too.

A wheel's .pth file has every Python of its environment call `install`, so this imports nothing that
Python has not imported by then.
"""

import sys

NAMES = ("kernels", "notebooks", "reference")


class Finder:
    """Imports NAMES from the folder, whatever else on sys.path has these names."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """What Python's import asks for; None leaves it to sys.path."""
        if name not in NAMES:
            return None
        from playground_folder import place

        return place.spec_of(name)


def install() -> None:
    """Have NAMES imported from the folder, where there is one."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
