"""Flags and paths on the compilers' command lines: each arrives as it was written.

On its way to g++ or nvcc an argument is read by ninja and by a shell. nvcc starts other programs
through a shell again, and for that one it leaves the quoting to its caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_NVCCS_PATHS_LACK = "$`'\"\\,"  # none of these comes through nvcc's own shell in a path
_NVCCS_OPTIONS = {  # whose values nvcc passes on, and what they are
    "-D": "macro",
    "--define-macro": "macro",
    "-Xcompiler": "host",
    "--compiler-options": "host",
    "-I": "path",
    "--include-path": "path",
    "-isystem": "path",
    "--system-include": "path",
    "-include": "path",
    "--pre-include": "path",
}


# What takes the next argument as its value: of g++ and clang, and of nvcc besides.
_TAKE_THE_NEXT = (
    r"-([ADFIJLTUelouxz]|M[FQT]|X(arch_\w+|assembler|clang|linker|preprocessor)|arch|aux-info"
    r"|framework|mllvm|target|i(dirafter|macros|multilib|nclude|prefix|quote|sysroot|system"
    r"|withprefix(before)?)|-(config|(un)?define-macro|imacros|include(-directory(-after)?)?|param"
    r"|sysroot|target))"
)
_NVCC_TAKES_THE_NEXT = (  # besides what takes_the_next knows
    r"-([Om]|brief-diag|Werror|-optimization-info|-x)"
    r"|--?(ftemplate-(backtrace-limit|depth)|sanitize)"
)


def awaits_value(flag: str, target: str = "cpu") -> bool:
    """Whether a flag takes the next argument as its value; nvcc's do for either target."""
    from toolchain.nvccs_flags import takes_the_next  # late: a load without flags does without

    if re.fullmatch(_TAKE_THE_NEXT, flag) or takes_the_next(flag):
        return True
    return target == "cuda" and re.fullmatch(_NVCC_TAKES_THE_NEXT, flag) is not None


def checked_flags(flags: Iterable[str], target: str) -> tuple[str, ...]:
    """`flags` as `load` takes them: each is one argument of the compiler.

    Raises:
        TypeError, ValueError: naming the flag, and what is wanted.
    """
    if isinstance(flags, (str, bytes)):
        raise TypeError(f"flags is {flags!r}; wanted a list with an item for each: [{flags!r}]")
    flags = tuple(flags)
    for flag in flags:
        if not isinstance(flag, str):
            raise TypeError(f"flags holds {flag!r}; wanted are strings, as in ['-DROWS=4']")
        if re.search(r"[\n\r\0]", flag):
            raise ValueError(f"flags holds {flag!r}: a flag cannot hold the end of a line")
    awaited = False
    for number, flag in enumerate(flags):
        if awaited:  # this is the value of the flag before it
            awaited = False
            continue
        awaited = awaits_value(flag, target)
        if flag.startswith("@"):
            raise ValueError(f"flags[{number}] is {flag!r}: give the flags that this file holds")
        if not flag.startswith("-"):
            raise ValueError(
                f"flags[{number}] is {flag!r}, which is not a flag, for it does not begin with -,"
                " nor is it the value of the flag before it, as in ['-include', 'x.h']. Write a"
                " macro as '-DNAME=value', and give a further source to load itself, as in"
                " load('my.cu', 'more.cu', flags=[...])"
            )
    if target == "cuda":
        for_nvcc(flags)
    return flags


def check_path(path: Path, target: str) -> None:
    """Raises ValueError for a path that the compilers for `target` cannot be given."""
    text = os.fsencode(path).decode(errors="replace")
    refused = "\n\r" if target == "cpu" else "\n\r" + _NVCCS_PATHS_LACK
    bad = [char for char in refused if char in text]
    if bad or "\ufffd" in text:
        what = f"holds {bad[0]!r}" if bad else "is not UTF-8"
        whose = "nvcc" if bad and bad[0] in _NVCCS_PATHS_LACK else "a compiler"
        raise ValueError(f"the path {text!r} {what}, which {whose} cannot read: rename it")


def for_ninja(argument: str) -> str:
    """An argument as it stands in a command of a ninja file: for ninja, and for the shell."""
    import shlex  # late: an import would wait for it

    return shlex.quote(argument).replace("$", "$$")


def for_nvcc(flags: Iterable[str]) -> list[str]:
    """Flags that reach nvcc's preprocessor and the C++ compiler behind it as they are here.

    A comma goes on separating the options of -Xcompiler, as nvcc documents it.

    Raises:
        ValueError: a flag of another kind holds what nvcc's own shell would interpret.
    """
    result, option = [], ""
    for flag in flags:
        if option:  # this is its value
            name, before, value = option, "", flag
        elif flag in _NVCCS_OPTIONS:
            name, before, value = "", flag, ""
        else:
            match = re.match(r"(-[DI])|(--?[\w-]+)=|", flag)
            name, before, value = match[1] or match[2], match[0], flag[match.end() :]
        option = "" if option else flag if flag in _NVCCS_OPTIONS else ""
        kind = _NVCCS_OPTIONS.get(name)
        if kind == "macro":  # nvcc puts it between double quotes
            value = re.sub(r"[\\$`]", r"\\\g<0>", value)
            value = re.sub(r'[\\",]', r"\\\g<0>", value)
        elif kind == "host":  # nvcc puts it there as it is, but for blanks at an option's end
            value = re.sub(r" +(?=,|$)", "", value)
            value = re.sub(r"[^\w@%+=:.,/-]", r"\\\g<0>", value)
            value = re.sub(r'[\\"]', r"\\\g<0>", value)
        else:
            refused = _NVCCS_PATHS_LACK if kind == "path" else " $`'\"\\;&|()<>*?#"
            bad = [char for char in value if char in refused]
            if " " in bad:
                raise ValueError(f"flags holds {flag!r}; wanted a list of {flag.split()}")
            if bad:
                raise ValueError(
                    f"flags holds {flag!r}: nvcc gives this flag to a shell, which would interpret"
                    f" {bad[0]!r}. Only the values of -D and -Xcompiler may hold any character"
                )
        result.append(before + value)
    return result
