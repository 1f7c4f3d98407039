"""Files that flags name: libraries, and whatever else a compiler or a linker reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from toolchain.sources import values_of

# The folders that linkers search last. The architecture's is added.
_LIBRARY_FOLDERS = [
    f"{root}/{name}" for name in ("lib", "lib64") for root in ("/usr/local", "", "/usr")
]


def options_in(flags: Iterable[str]) -> list[str]:
    """Flags as the linker sees them: those in -Wl, and after -Xlinker are separated."""
    found: list[str] = []
    for flag in flags:
        if flag.startswith("-Wl,"):
            found.extend(flag.split(",")[1:])
        elif flag != "-Xlinker":
            found.append(flag)
    return found


def named_in(flags: Iterable[str]) -> list[str]:
    """The absolute paths in flags, existing or not, except those in the values of macros."""
    found = []
    for flag in flags:
        if not re.match(r"-[DU]", flag):
            found += [match[0] for match in re.finditer(r"(?<![\w/.])/[^,=]+", flag)]
            found += re.findall(r"^-[A-Za-z]+(/.+)$", flag)  # -T/a/script
    return found


def libraries_in(flags: Sequence[str], library_path: str) -> list[list[list[str]]]:
    """For each library that flags name, the files that it may be, folder by folder in the linker's
    order.

    library_path: the environment variable LIBRARY_PATH.
    """
    names = values_of(flags, "-l")
    if not names:
        return []
    import sysconfig  # late: most kernels name no library

    folders = [*values_of(flags, "-L"), *filter(None, library_path.split(os.pathsep))]
    architecture = sysconfig.get_config_var("MULTIARCH")
    for folder in _LIBRARY_FOLDERS:
        folders += [f"{folder}/{architecture}"] * bool(architecture) + [folder]
    files = ([name[1:]] if name[0] == ":" else [f"lib{name}.so", f"lib{name}.a"] for name in names)
    return [[[f"{folder}/{file}" for file in each] for folder in folders] for each in files]


def is_linked_in(path: str) -> bool:
    """Whether a library's content is copied into what is linked with it."""
    return re.search(r"\.(so|dylib)(\.|$)", path) is None
