"""Keeps a user's macros out of the simulator's headers.

Nobody who writes -DN=4 or `#define lane 3` expects one of CUDA's headers to change. nvcc's headers
use reserved names; the simulator's are read with none of the user's macros defined:

  - The first header of a source comes before the macros that flags define. These follow it at the
    top of the source.
  - If a source includes a further header, such as <mma.h>, the compiler finds one of this name in a
    folder of the build, which undefines the macros, includes the real header, and restores them.

Macros that headers ask for (STEERING) stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# The macros with which a program configures headers of the simulator, C and C++, CCCL and
# PyTorch.
STEERING = (
    r"_\w*|NDEBUG|(?:SIMULATOR|PLAYGROUND|THRUST|CUB|CCCL|LIBCUDACXX|NVTX3?|NV|CUDA|CUDART|CUBLAS"
    r"|TORCH|PYTORCH|AT|C10|CAFFE2|USE|CPU_CAPABILITY)_\w*"
)

_ASIDE, _BACK = "simulator/macros_aside.h", "simulator/macros_back.h"
_SCREEN = f"""\
#ifdef SIMULATOR_SCREEN
#include_next <{{0}}>
#else
#define SIMULATOR_SCREEN
#include <{_ASIDE}>
#include_next <{{0}}>
#include <{_BACK}>
#undef SIMULATOR_SCREEN
#endif
"""
_SET_ASIDE = """\
#ifdef {0}
#define SIMULATOR_ASIDE_{0}
#pragma push_macro("{0}")
#undef {0}
#endif
"""
_PUT_BACK = """\
#ifdef SIMULATOR_ASIDE_{0}
#undef SIMULATOR_ASIDE_{0}
#line 1 "macro {0}"
#pragma pop_macro("{0}")
#endif
"""
# Patterns are strings, so that only builds compile them.
_DEFINE = r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)"
_INCLUDED = r'(?m)^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]'
_OPTION = r"(?s)-(D|U|include)(.*)"


class Given(NamedTuple):
    """What flags make a compiler read before a source.

    macros: each name with its whole definition, as in "f(x) x + 1"; None if it is undefined.
    headers: the names given to -include.
    """

    macros: dict[str, str | None]
    headers: list[str]

    def text(self) -> str:
        """The same as text for the top of a source. Compilers name the flag that a line is from.

        As on a command line, a header that also defines such a macro wins.
        """
        lines = []
        for name, definition in self.macros.items():
            if definition is None:
                lines.append(f"#undef {name}")
            else:
                lines += [f'#line 1 "-D{name}"', f"#ifndef {name}", f"#define {definition}"]
                lines.append("#endif")
        for header in self.headers:
            lines += [f'#line 1 "-include {header}"', f'#include "{header}"']
        return "".join(f"{line}\n" for line in lines)


def apart(flags: Iterable[str]) -> tuple[list[str], Given]:
    """A C++ compiler's flags without those that define macros for sources, and these macros."""
    kept: list[str] = []
    given = Given({}, [])
    left = iter(flags)
    for flag in left:
        option = re.fullmatch(_OPTION, flag)
        value = option and (option[2] or next(left, ""))
        if not option or (option[1] == "include" and option[2]):  # such as -include-pch
            kept.append(flag)
        elif option[1] == "include":
            given.headers.append(value)
        else:
            head, equals, body = value.partition("=")
            name = re.split(r"\W", head, maxsplit=1)[0]
            if re.fullmatch(STEERING, name):
                kept.append(f"-{option[1]}{value}")
            else:
                definition = f"{head} {body if equals else '1'}"
                given.macros.pop(name or head, None)
                given.macros[name or head] = definition if option[1] == "D" else None
    return kept, given


def defined_in(texts: Iterable[str]) -> set[str]:
    """The macros that these texts define, except those that headers must see."""
    names = {name for text in texts if "define" in text for name in re.findall(_DEFINE, text)}
    return {name for name in names if not re.fullmatch(STEERING, name)}


def undefined(names: Iterable[str]) -> str:
    """Text that undefines these macros."""
    return "".join(f"\n#undef {name}" for name in sorted(names))


def screens(macros: Iterable[str], texts: Iterable[str], folders: Iterable[Path]) -> dict[str, str]:
    """Headers with the names of those that texts include from these folders. Each includes the real
    one, with macros undefined. Two further headers undefine and restore the macros."""
    macros, folders = sorted(macros), list(folders)
    included = {name for text in texts for name in re.findall(_INCLUDED, text)} if macros else set()
    inner = (name for name in included if not name.startswith("/") and ".." not in name)
    there = (name for name in inner if any((folder / name).is_file() for folder in folders))
    headers = {name: _SCREEN.format(name) for name in there}
    if headers:
        headers[_ASIDE] = "".join(map(_SET_ASIDE.format, macros))
        headers[_BACK] = "".join(map(_PUT_BACK.format, macros))
    return headers
