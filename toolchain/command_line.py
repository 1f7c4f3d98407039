"""Flags and paths on the compilers' command lines: each must arrive as it was written.

An argument for g++ or nvcc is read by ninja and by a shell. nvcc starts other programs through a
shell again, and its caller has to quote arguments for that one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_NVCCS_PATHS_LACK = "$`'\"\\,"  # a path with one of these fails in nvcc's own shell
_NVCCS_OPTIONS = {  # options whose values nvcc passes on, and the kinds of values
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


# Options that take the next argument as their value: of g++ and clang, and then of nvcc.
_TAKE_THE_NEXT = (
    r"-([ADFIJLTUelouxz]|M[FQT]|X(arch_\w+|assembler|clang|linker|preprocessor)|arch|aux-info"
    r"|framework|mllvm|target|i(dirafter|macros|multilib|nclude|prefix|quote|sysroot|system"
    r"|withprefix(before)?)|-(config|(un)?define-macro|imacros|include(-directory(-after)?)?|param"
    r"|sysroot|target))"
)
_NVCC_TAKES_THE_NEXT = (  # in addition to those of takes_the_next
    r"-([Om]|brief-diag|Werror|-optimization-info|-x)"
    r"|--?(ftemplate-(backtrace-limit|depth)|sanitize)"
)


def awaits_value(flag: str, target: str = "cpu") -> bool:
    """Whether a flag takes the next argument as its value; nvcc's flags do for both targets."""
    from toolchain.nvccs_flags import takes_the_next  # late: only for flags

    if re.fullmatch(_TAKE_THE_NEXT, flag) or takes_the_next(flag):
        return True
    return target == "cuda" and re.fullmatch(_NVCC_TAKES_THE_NEXT, flag) is not None


def checked_flags(flags: Iterable[str], target: str) -> tuple[str, ...]:
    """The flags of `load`, checked: each is one argument of the compiler.

    Raises:
        TypeError, ValueError: they name the flag, and what is wanted.
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
    """Raises ValueError for a path that the compilers for `target` cannot read."""
    text = os.fsencode(path).decode(errors="replace")
    refused = "\n\r" if target == "cpu" else "\n\r" + _NVCCS_PATHS_LACK
    bad = [char for char in refused if char in text]
    if bad or "\ufffd" in text:
        what = f"holds {bad[0]!r}" if bad else "is not UTF-8"
        whose = "nvcc" if bad and bad[0] in _NVCCS_PATHS_LACK else "a compiler"
        raise ValueError(f"the path {text!r} {what}, which {whose} cannot read: rename it")


def for_ninja(argument: str) -> str:
    """An argument quoted for a command in a ninja file: for ninja and for the shell."""
    import shlex  # late: it would slow the import

    return shlex.quote(argument).replace("$", "$$")


def for_nvcc(flags: Iterable[str]) -> list[str]:
    """Flags quoted so that nvcc's preprocessor and its C++ compiler get them unchanged.

    A comma still separates the options of -Xcompiler, as nvcc documents.

    Raises:
        ValueError: a flag of another kind has a character that nvcc's own shell would interpret.
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
        if kind == "macro":  # nvcc puts double quotes around it
            value = re.sub(r"[\\$`]", r"\\\g<0>", value)
            value = re.sub(r'[\\",]', r"\\\g<0>", value)
        elif kind == "host":  # nvcc copies it, except blanks at the end of an option
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
