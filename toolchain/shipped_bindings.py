"""How a package registers a kernel's functions: one operator for both of its parts.

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
        m.def("forward(Tensor x) -> Tensor");
    }
    STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
        m.impl("forward", TORCH_BOX(&forward));
    }

becomes, in the part for the CPU, a definition and an implementation for tensors on the CPU, and in
the part for GPUs an implementation for those, of the operator that the other part defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.scan import blank, closing
from toolchain.code import Code
from toolchain.registrations import UNIQUE, Edit, Registration

KEYS = {"cpu": "CPU", "cuda": "CUDA"}
_OF_ANY_DEVICE = ("CompositeExplicitAutograd", "CUDA")  # what is written for a GPU runs on the CPU


@dataclass(frozen=True)
class Names:
    """Under which names a part registers.

    namespace: of its operators.
    defines: whether it defines them.
    expanded: by the macros of kernel-builder's registration.h, for its namespace is a macro.
    """

    namespace: str
    defines: bool
    expanded: bool = False


def are_shared(code: Code) -> bool:
    """Whether both parts can implement one set of operators: they are defined by schemas alone."""
    registrations = code.registrations.all
    spaces = {r.name for r in registrations}
    if code.binding != "ops" or len(spaces) != 1:
        return False
    defined = {op for r in registrations if r.defines for op in r.ops}
    implemented = {op for r in registrations if _is_for_a_device(r) for op in r.ops}
    return defined <= implemented and not any(map(_defines_a_function, _blocks(code)))


def namespace_in(code: Code) -> str | None:
    """The namespace that the sources give their operators; None where it is the build's."""
    names = {code.registrations._value(r.name) for r in code.registrations.all}
    return next(iter(names - {UNIQUE}), None)


def bound(code: Code, path: Path, part: str, names: Names) -> str:
    """A file of sources whose operators both parts implement, as one of them has it.

    part: "cpu" or "cuda".
    """
    text, parts, end = code.text(path), [], 0
    for start, stop, replacement in sorted(_edits(code, path, text, part, names)):
        parts += text[end:start], replacement
        end = stop
    return "".join(parts) + text[end:]


def _edits(code: Code, path: Path, text: str, part: str, names: Names) -> Iterator[Edit]:
    own = code.registrations.all
    native = {op for r in own if r.is_implementation and r.key == "CPU" for op in r.ops}
    for registration in own:
        if registration.path != path:
            continue
        whole = registration.start, _end(text, registration)
        if registration.defines and not names.defines:
            yield *whole, "// The operators are defined by the part for the CPU."
            continue
        key = registration.key
        if key in _OF_ANY_DEVICE:
            if part == "cpu" and native.intersection(registration.ops):
                yield *whole, ""
                continue
            at = text.rindex(key, registration.start, registration.end)
            yield at, at + len(key), KEYS[part]
        elif key and part == "cuda" and (key == "CPU" or not names.defines):
            yield *whole, ""  # that of the part for the CPU serves both
            continue
        yield (
            registration.name_start,
            registration.name_start + len(registration.name),
            (names.namespace),
        )
        if names.expanded:
            macro = registration.start + len(registration.macro)
            yield macro, macro, "_EXPAND"


def _is_for_a_device(registration: Registration) -> bool:
    return registration.is_implementation and registration.key in (*_OF_ANY_DEVICE, "CPU")


def _end(text: str, registration: Registration) -> int:
    plain = blank(text)
    brace = plain.find("{", registration.end)
    return closing(plain, brace) or len(text)


def _blocks(code: Code) -> Iterator[str]:
    for registration in code.registrations.all:
        if registration.defines:
            text = code.text(registration.path)
            yield blank(text)[registration.end : _end(text, registration)]


def _defines_a_function(block: str) -> bool:
    """Whether a block, whose strings are blank, has a definition with more than a schema."""
    for call in re.finditer(r"\.\s*def\s*\(", block):
        end = closing(block, call.end() - 1) or len(block)
        if "," in block[call.end() : end]:
            return True
    return False
