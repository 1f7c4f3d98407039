"""The doctor's rows on the cache's folders: what, what was found, and the remedy."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from jitloader.cache import MANIFEST, Cache

LEAST_FREE = 1e9  # bytes: a build of one op takes some megabytes, all ops a few hundred
Row = tuple[str, str | None, str]


def cache_rows() -> Iterator[Row]:
    """Rows for the user's own folder and the shared ones."""
    try:
        cache = Cache.here()
    except PermissionError as refused:
        yield "cache", None, str(refused)
        return
    own, shared = cache.own, cache.shared
    if cache.is_temporary:
        unusable, *shared = shared
        remedy = (
            f"{unusable} cannot be written to, so that every process builds anew, in {own}: set"
            " JITLOAD_CACHE to a folder that you can write to, and name this one second, if at all"
        )
        yield "cache", None, remedy
    else:
        free = shutil.disk_usage(own).free
        place = f"{own} ({free / 1e9:.1f} GB are free)"
        full = f"{place}: python -m jitload prune makes room, JITLOAD_CACHE names another folder"
        yield "cache", place if free >= LEAST_FREE else None, full
    for folder in shared:
        yield "shared cache", *_shared(folder)


def _shared(folder: Path) -> tuple[str | None, str]:
    """What was found in a shared folder, and the remedy."""
    if not folder.is_dir():
        return None, f"{folder} is no folder: correct JITLOAD_CACHE"
    try:
        made_with = Counter(map(_torch_of, folder.glob(f"*_*/{MANIFEST}")))
        next(folder.iterdir(), None)  # raises errors that glob ignores
    except OSError as error:
        who = f"whoever fills it says `umask 022` before, and `chmod -R go+rX {folder}` now"
        return None, f"{folder} cannot be read ({error.strerror}): {who}"
    every, fitting = made_with.total(), made_with[torch.__version__]
    if not fitting:
        others = ", ".join(sorted(made_with))
        what = f"its {every} builds are for PyTorch {others}" if others else "it is empty"
        return None, f"{folder} has no build for PyTorch {torch.__version__}: {what}"
    return f"{folder} ({fitting} of {every} builds are for this PyTorch)", ""


def _torch_of(manifest: Path) -> str:
    """The PyTorch that a build was made for."""
    try:
        return json.loads(manifest.read_bytes())["torch"]
    except (KeyError, TypeError, ValueError):
        return "unknown"
