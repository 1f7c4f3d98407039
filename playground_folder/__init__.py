"""Finds the folder whose kernels/, notebooks/ and reference.py a process uses.

In a clone this is the clone. If the project is installed from a wheel, it is the folder that
`kernel-playground new` made and in which the process works: see `playground_folder.place`.
`install` has these names imported from there, also by scripts and notebooks in its subfolders.

A wheel's .pth file has every Python process of its environment call `install`, so this module
imports nothing that Python has not already imported by then.
"""

import sys

NAMES = ("kernels", "notebooks", "reference")


class Finder:
    """Imports NAMES from the folder, whatever else on sys.path has these names."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """The method that Python's import calls; None leaves the name to sys.path."""
        if name not in NAMES:
            return None
        from playground_folder import place

        return place.spec_of(name)


def install() -> None:
    """Have NAMES imported from the folder, if there is one."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
