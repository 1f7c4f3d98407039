"""The last object of each source, kept in the cache for the builds of a kernel to come.

An edit changes one file of a kernel's; what the others were compiled to is linked again. `objects/`
holds a folder for each source of a kernel, which the next object replaces.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from jitloader.cache import MANIFEST
from jitloader.inputs import Inputs
from toolchain.notes import made, read_note, write_note
from toolchain.objects import Earlier, Object


def earlier(inputs: Inputs) -> Earlier:
    """The objects that builds of the same kernel have left.

    Of a kernel of one source there are none: whatever changes it changes its object.
    """
    recipe, objects = inputs.recipe, {}
    if len(recipe.sources) > 1 and not recipe.program:
        for number in range(len(recipe.sources)):
            if found := _read(inputs.cache.own / _folder(inputs, number)):
                objects[number] = found
    return Earlier(inputs.settings, objects, inputs.cache.own / "stand_ins")


def keep(inputs: Inputs, objects: dict[int, Object], work: Path) -> None:
    """Leave new objects for later builds; `work` is the build's private folder.

    On a full disk they are left out: the build itself is there.
    """
    if len(inputs.recipe.sources) == 1 or inputs.recipe.program:
        return
    with contextlib.suppress(OSError):
        for number, kept in objects.items():
            result = work / f"object{number}"
            result.mkdir()
            (result / "object").write_bytes(kept.data)
            facts = {name: value for name, value in vars(kept).items() if name != "data"}
            write_note(result / MANIFEST, facts | {"sha256_of_object": _sha256(kept.data)})
            made(inputs.cache.own / "objects")
            inputs.cache.place(result, _folder(inputs, number))


def _read(folder: Path) -> Object | None:
    """None where there is none, or not a whole one."""
    note = read_note(folder / MANIFEST)
    if note is None:
        return None
    with contextlib.suppress(OSError):
        data = (folder / "object").read_bytes()
        if _sha256(data) == note.pop("sha256_of_object"):
            return Object(data=data, **note)
    return None


def _folder(inputs: Inputs, number: int) -> str:
    return f"objects/{inputs.recipe.identifier}_{inputs.recipe.key}.{number}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
