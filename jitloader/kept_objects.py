"""The last object of each source, kept in the cache for later builds of the kernel.

An edit usually changes one file of a kernel; the objects of the others are linked again. `objects/`
has a folder for each source of a kernel, with its newest object. In a class that shares a cache,
the first edit of a kernel is linked with the teacher's objects.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jitloader.builds import Build
from jitloader.cache import MANIFEST
from jitloader.inputs import Inputs
from toolchain import machine, parts
from toolchain.kernel_fatbins import OnDemand
from toolchain.notes import digest_of, made, read_note, write_note
from toolchain.objects import Earlier, Object
from toolchain.parts import Deferred, DeferredFunction
from toolchain.sources import label


def earlier(inputs: Inputs, on_demand: OnDemand | None = None) -> Earlier:
    """The objects that earlier builds of the same kernel have left.

    A kernel of one source has none, because every change changes its object. But if a build's
    kernels are compiled `on_demand`, the object of its host code is kept while that is unchanged.
    """
    recipe, folders = inputs.recipe, {}
    if recipe.part:
        folders = {0: recipe.part.kept} if recipe.part.kept else {}
    elif len(recipe.sources) > 1 and not recipe.program:
        folders = {number: _folder(inputs, number) for number in range(len(recipe.sources))}
    if on_demand:
        folders[on_demand.source] = f"{_folder(inputs, on_demand.source)}.host"
    last = {number: _read(_place(inputs, folder)) for number, folder in folders.items()}
    objects = {number: each for number, each in last.items() if each}
    stub_libraries, precompiled = (
        [folder / name for folder in inputs.cache.folders]
        for name in ("stub_libraries", "precompiled")
    )
    settings = [_compiled_as(inputs, number).settings for number in range(len(recipe.sources))]
    return Earlier(settings, objects, stub_libraries, precompiled)


def keep(
    inputs: Inputs, objects: dict[int, Object], work: Path, on_demand: OnDemand | None = None
) -> None:
    """Keep new objects for later builds; `work` is the build's private folder.

    On a full disk they are not kept; the build is complete without.

    on_demand: for a build whose kernels are compiled on demand.
    """
    alone = len(inputs.recipe.sources) == 1 and not on_demand
    if alone or inputs.recipe.program or inputs.recipe.part:
        return
    with contextlib.suppress(OSError):
        for number, kept in objects.items():
            result = work / f"object{number}"
            result.mkdir()
            (result / "object").write_bytes(kept.data)
            facts = {name: value for name, value in vars(kept).items() if name != "data"}
            write_note(result / MANIFEST, facts | {"sha256_of_object": _sha256(kept.data)})
            made(inputs.cache.own / "objects")
            of_host = on_demand is not None and number == on_demand.source
            inputs.cache.place(result, _folder(inputs, number) + ".host" * of_host)


def deferred(inputs: Inputs) -> Deferred | None:
    """The launchers in a kernel's .cu when it was last compiled whole.

    For a build that is instrumented for lab.check, those of the build that is not.

    None if it cannot be compiled in parts.
    """
    if inputs.recipe.check:
        plain = deferred(inputs.plain())
        return plain and parts.without_calls(plain)
    recipe = inputs.recipe
    kernels = [n for n, path in enumerate(recipe.sources) if path.suffix == ".cu"]
    plain = recipe.target == "cpu" and not (recipe.program or recipe.debug)
    supported = parts.SUPPORTED and not machine.is_clang(inputs.compilers)
    if not (supported and plain and len(kernels) == 1 and len(recipe.sources) > 1):
        return None
    folders = [_place(inputs, _folder(inputs, n)) for n in range(len(recipe.sources))]
    notes = [read_note(folder / MANIFEST) for folder in folders]
    if None in notes:
        return None
    bindings = [number for number in range(len(notes)) if number != kernels[0]]
    if not all(_still_reads(inputs, folders[n], notes[n]) for n in bindings):
        return None
    objects = [folder / "object" for folder in folders]
    source = objects.pop(kernels[0])
    digest = digest_of(*(note["sha256_of_object"] for note in notes))
    named = parts.Named.of(list(map(inputs.text, inputs.files)))
    functions = parts.functions(source, tuple(objects), named, digest)
    return Deferred(kernels[0], functions) if functions else None


def _still_reads(inputs: Inputs, folder: Path, note: dict[str, Any]) -> bool:
    """Whether the files that an object was made from are still those of its build."""
    build = Build.read(folder.parents[1] / note["build"])
    now = {label(path): data for path, data in inputs.files.items()}
    return build is not None and all(
        name in now and build.inputs.get(name) == digest_of(now[name]) for name in note["read"]
    )


def part_of(
    inputs: Inputs, build: str, functions: Mapping[str, DeferredFunction], wanted: Iterable[str]
) -> Inputs:
    """The inputs of a library with some functions of a build."""
    number = next(n for n, path in enumerate(inputs.recipe.sources) if path.suffix == ".cu")
    part = parts.part(build, functions, list(wanted), _folder(inputs, number))
    recipe = replace(inputs.recipe, sources=(inputs.recipe.sources[number],), part=part)
    return replace(inputs, recipe=recipe)


def host_part_of(
    inputs: Inputs, functions: Mapping[str, DeferredFunction], launchers: Iterable[str]
) -> Inputs:
    """The inputs of a library with launchers only, which do not change if an edit changes only
    kernels."""
    part = parts.part("", functions, sorted(launchers), "")._replace(of_host=True)
    source = next(path for path in inputs.recipe.sources if path.suffix == ".cu")
    texts = {path: inputs.text(path) for path in inputs.files}
    left = parts.for_host(texts, " ".join(inputs.recipe.flags))
    files = {path: text.encode() for path, text in left.items()}
    recipe = replace(inputs.recipe, sources=(source,), part=part)
    return replace(inputs, recipe=recipe, files=files, stats={})


def without_aliases(inputs: Inputs, output: str) -> Inputs | None:
    """The inputs of a part without the aliases that the compiler refused; None if there are none.

    output: the compiler's.
    """
    part = inputs.recipe.part
    statements = parts.without_aliases(part.statements, output)
    if statements == part.statements:
        return None
    left = part._replace(statements=statements)
    return replace(inputs, recipe=replace(inputs.recipe, part=left))


def _read(folder: Path) -> Object | None:
    """The object in a folder; None if there is none, or an incomplete one."""
    note = read_note(folder / MANIFEST)
    if note is None:
        return None
    with contextlib.suppress(OSError):
        data = (folder / "object").read_bytes()
        if _sha256(data) == note.pop("sha256_of_object"):
            return Object(data=data, **note)
    return None


def _place(inputs: Inputs, folder: str) -> Path:
    """The folder of an object: in the user's own cache, or else in a shared one."""
    places = [layer / folder for layer in inputs.cache.folders]
    return next((place for place in places if (place / MANIFEST).is_file()), places[0])


def _folder(inputs: Inputs, number: int) -> str:
    recipe = _compiled_as(inputs, number).recipe
    return f"objects/{recipe.identifier}_{recipe.key}.{number}"


def _compiled_as(inputs: Inputs, number: int) -> Inputs:
    """The inputs with a source's settings: lab.check instruments kernels, not bindings."""
    is_kernel = inputs.recipe.sources[number].suffix == ".cu"
    return inputs.plain() if inputs.recipe.check and not is_kernel else inputs


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
