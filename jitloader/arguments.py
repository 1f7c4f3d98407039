"""Checks the arguments of `load` and makes a recipe of them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jitloader.inputs import formulas_of
from toolchain import machine
from toolchain.code import Recipe
from toolchain.command_line import check_path, checked_flags
from toolchain.machine import default_target
from toolchain.sources import ROOT, file_in, folders_in

KERNELS = ROOT / "kernels"
LONGEST_NAME = 100  # of a kernel: it is part of folder names


def op_file(name: str, suffix: str) -> Path:
    """The file of an op, in kernels/ or a folder of it; it need not exist."""
    paths = [folder / f"{name}{suffix}" for folder in op_folders()]
    return next(filter(_is_file, paths), paths[0])


def op_files(suffix: str) -> dict[str, Path]:
    """The files of all ops with this suffix, by the ops' names, in order."""
    files: dict[str, Path] = {}
    for folder in op_folders():
        for path in folder.glob(f"[a-z]*{suffix}"):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def op_folders() -> list[Path]:
    """kernels/ and its folders of op families, in order; without include/, which has headers."""
    with contextlib.suppress(OSError), os.scandir(KERNELS) as entries:
        names = sorted(e.name for e in entries if e.name[0] not in "._" and e.is_dir())
        return [KERNELS, *(KERNELS / name for name in names if name != "include")]
    return [KERNELS]


def arguments_for(recipe: Recipe) -> tuple[list[str], dict[str, Any]]:
    """The sources and options with which `load` makes this recipe, here or on other machines.

    So an op is given by its name, and this process's default target as None.
    """
    options = {
        "name": recipe.name,
        "target": None if recipe.target == default_target() else recipe.target,
        "flags": recipe.flags,
        "debug": recipe.debug,
    }
    by_name = [recipe.sources[0].stem]
    further = [str(p) for p in recipe.include if not p.is_relative_to(KERNELS)]
    with contextlib.suppress(FileNotFoundError):
        named = recipe_of(by_name, include=further, **options)
        if replace(named, formulas=recipe.formulas) == recipe:
            return by_name, {**options, "include": further}
    return list(map(str, recipe.sources)), {**options, "include": list(map(str, recipe.include))}


def _is_file(path: Path) -> bool:
    return _why_no_file(path) is None


def _why_no_file(path: Path) -> str | None:
    """None if the path is a file; else the reason that it is none: "" if it just does not
    exist."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return "" if error.errno == errno.ENOENT else error.strerror
    except ValueError as error:  # it contains a null character
        return str(error)
    if stat.S_ISREG(mode):
        return None
    return "it is a folder" if stat.S_ISDIR(mode) else "it is no ordinary file"


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(file_in("", str(Path(path).expanduser().absolute())))


def recipe_of(
    sources: Iterable[str | os.PathLike[str]],
    name: str | None = None,
    target: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    debug: bool | None = None,
    program: bool = False,
) -> Recipe:
    sources = list(sources)
    if not sources:
        raise TypeError("load() wants the name of an op in kernels/, or the paths of sources")
    for source in map(str, sources):
        if source.startswith("-") and not _is_file(Path(source)):
            raise TypeError(f"{source!r} is no source; flags are given as flags=[{source!r}]")
    formulas = ""
    if len(sources) == 1 and not Path(sources[0]).suffix:
        op = str(sources[0])
        source = op_file(op, ".cu")
        source = source if _is_file(source) else op_file(op, ".cpp")
        paths = [p for p in map(source.with_suffix, (".cu", ".cpp")) if _is_file(p)]
        if not paths:
            there = ", ".join(op_files(".cu"))
            raise FileNotFoundError(f"no op {op!r} in {KERNELS}; there are: {there or 'none'}")
        formulas = formulas_of(source.with_suffix(".py"))
    else:
        paths = list(dict.fromkeys(map(_absolute, sources)))
        for path in paths:
            if (why := _why_no_file(path)) is not None:
                raise FileNotFoundError(": ".join(filter(None, [f"no source {path}", why])))
            if path.suffix not in (".cu", ".cpp", ".cc", ".cxx", *[".c"] * program):
                raise ValueError(f"{path}: wanted a .cu or .cpp (headers are found by #include)")
    stem = re.sub(r"\W", "_", name or paths[0].stem, flags=re.ASCII)[:LONGEST_NAME]
    target = machine.checked_target(target, "target") if target else default_target()
    flags = checked_flags(flags, target)
    folders = [*map(_absolute, include), *(p.parent for p in paths), KERNELS / "include"]
    folders += map(_absolute, folders_in(flags, "-I"))  # compilers search these last, too
    for path in (*paths, *folders, KERNELS):
        check_path(path, target)
    if debug is None:
        debug = os.environ.get("JITLOAD_DEBUG", "0") not in ("", "0")
    return Recipe(
        name=stem,
        sources=tuple(paths),
        include=tuple(dict.fromkeys(folders)),
        flags=flags,
        target=target,
        debug=debug,
        formulas=formulas,
        program=program,
    )
