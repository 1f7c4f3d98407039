"""How a package registers a kernel's functions: each operator is shared by both parts.

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
        m.def("forward(Tensor x) -> Tensor");
    }
    STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
        m.impl("forward", TORCH_BOX(&forward));
    }

becomes, in the part for the CPU, a definition and an implementation for CPU tensors. In the part
for GPUs it becomes an implementation of the same operator for GPU tensors. If a definition includes
its function, m.def("f(Tensor x) -> Tensor", &f), the part for GPUs implements it with
m.impl("f", ...).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.scan import blank, closing, without_comments
from toolchain.code import Code
from toolchain.registrations import UNIQUE, Edit, Registration, edited
from toolchain.sources import label

KEYS = {"cpu": "CPU", "cuda": "CUDA"}
_FRAGMENT = "TORCH_LIBRARY_FRAGMENT"
_STATEMENT = re.compile(
    r'\b(?P<library>\w+)\s*\.\s*(?P<kind>def|impl)\s*\(\s*(?:[\w:]+\s*\(\s*)*"(?:\w+::)?(?P<op>[\w.]+)'
)
_TAGS = re.compile(r"\{|std::vector\b|(?:\w+::)*Tag::")
_KEY = re.compile(r"\bk(CUDA|CPU)\b|\bDispatchKey\s*::\s*(\w+)")
_CLASS = re.compile(r"\b(?:class_|enum_)\s*<")
_OF_ANY_DEVICE = ("CompositeExplicitAutograd", "CUDA")  # code for a GPU runs on the CPU, too


@dataclass(frozen=True)
class Names:
    """The names under which a part registers.

    namespace: of its operators.
    defines: whether it defines them.
    expanded: whether it uses the macros of kernel-builder's registration.h: the namespace is one.
    """

    namespace: str
    defines: bool
    expanded: bool = False


def why_not_shipped(code: Code) -> str:
    """Why no package can have both parts of a kernel with such a binding; "" if one can.

    The parts share operators: one defines them, and each implements them. With pybind11 each part
    is a module, so classes, which can be registered only once per process, are not possible.
    """
    registrations = code.registrations.all
    if code.binding == "module":
        return _why_not_twice(code)
    if code.binding != "ops":
        return ""
    spaces = {r.name for r in registrations}
    if len(spaces) > 1:
        return f"registers operators under several names, {', '.join(sorted(spaces))}: choose one"
    defined = {op for r in registrations if r.defines for op in r.ops}
    implemented = {op for r in registrations if _is_for_a_device(r) for op in r.ops}
    implemented |= {
        call.op
        for r in registrations
        if r.defines
        for call in _calls(code.text(r.path), r)
        if call.function and call.key in ("", "CPU", "CUDA")
    }
    if missing := sorted(defined - implemented):
        return (
            f"has nothing that implements {', '.join(missing)} for CUDA or for every device, as"
            " STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA, m) or TORCH_LIBRARY_IMPL would"
        )
    return ""


def _why_not_twice(code: Code) -> str:
    if any(r.macro != "PYBIND11_MODULE" for r in code.registrations.all):
        return (
            "has PYBIND11_MODULE and TORCH_LIBRARY: a package takes its functions from one of them."
            " Register all by one, and drop the other"
        )
    for path in code.own:
        text = blank(code.text(path))
        for match in _CLASS.finditer(text):
            if "module_local" not in text[match.start() : text.find(";", match.end())]:
                line = text.count("\n", 0, match.start()) + 1
                return (
                    f"registers a class of C++ with Python, at {label(path)}:{line}, and the parts"
                    " for the CPU and for GPUs would register it twice: give it"
                    " pybind11::module_local() as its last argument"
                )
    return ""


def namespace_in(code: Code) -> str | None:
    """The namespace of the operators in the sources; None if it is the build's."""
    names = {code.registrations._value(r.name) for r in code.registrations.all}
    return next(iter(names - {UNIQUE}), None)


def bound(code: Code, path: Path, part: str, names: Names) -> str:
    """The text of a source file in one of the two parts.

    part: "cpu" or "cuda".
    """
    text = code.text(path)
    return edited(text, _edits(code, path, text, part, names))


def _edits(code: Code, path: Path, text: str, part: str, names: Names) -> Iterator[Edit]:
    own = code.registrations.all
    native = {op for r in own if r.is_implementation and r.key == "CPU" for op in r.ops}
    for registration in own:
        if registration.path != path:
            continue
        whole = registration.start, _end(text, registration)
        if registration.defines:
            calls = list(_calls(text, registration))
            if not names.defines and not any(call.function for call in calls):
                yield *whole, "// The operators are defined by the part for the CPU."
                continue
            if not names.defines:
                yield registration.start, registration.start + len(registration.macro), _FRAGMENT
            for call in calls:
                if (edit := _edit_of(call, part, names)) is not None:
                    yield call.start, call.end, edit
        key = registration.key
        if key in _OF_ANY_DEVICE:
            if part == "cpu" and native.intersection(registration.ops):
                yield *whole, ""
                continue
            at = text.rindex(key, registration.start, registration.end)
            yield at, at + len(key), KEYS[part]
        elif key and part == "cuda" and (key == "CPU" or not names.defines):
            yield *whole, ""  # the part for the CPU has it for both
            continue
        start = registration.name_start
        yield start, start + len(registration.name), names.namespace
        if names.expanded:
            macro = registration.start + len(registration.macro)
            yield macro, macro, "_EXPAND"


def _is_for_a_device(registration: Registration) -> bool:
    return registration.is_implementation and registration.key in (*_OF_ANY_DEVICE, "CPU")


@dataclass(frozen=True)
class _Call:
    """A statement m.def(SCHEMA), m.def(SCHEMA, FUNCTION) or m.impl(NAME, KEY, FUNCTION) in a block
    that defines operators.

    defines: whether it is one of the first two.
    key: the function's dispatch key, such as "CPU" or "CUDA"; "" for any device.
    is_native: whether another statement has an implementation for the CPU.
    """

    library: str
    defines: bool
    op: str
    key: str
    function: str
    start: int
    end: int
    is_native: bool = False


def _calls(text: str, registration: Registration) -> list[_Call]:
    plain, code = blank(text), without_comments(text)
    end, calls = _end(text, registration), []
    for match in _STATEMENT.finditer(code, registration.end, end):
        opening = plain.index("(", match.start())
        close = closing(plain, opening) or end
        others = [it for it in _others(plain, code, opening + 1, close - 1) if not _TAGS.match(it)]
        key = _KEY.search(" ".join(others))
        calls.append(
            _Call(
                library=match["library"],
                defines=match["kind"] == "def",
                op=match["op"],
                key=(key[1] or key[2]) if key else "",
                function=others[-1] if others else "",
                start=match.start(),
                end=re.compile(r"\s*;?").match(plain, close).end(),
            )
        )
    natives = {call.op for call in calls if call.key == "CPU"}
    return [replace(call, is_native=call.op in natives) for call in calls]


def _others(plain: str, code: str, start: int, end: int) -> list[str]:
    """The arguments of a call after the first one."""
    depth, arguments, begin = 0, [], start
    for match in re.compile(r"->|[()\[\]{}<>,]").finditer(plain, start, end):
        depth += (match[0] in "([{<") - (match[0] in ")]}>")
        if match[0] == "," and depth == 0:
            arguments.append(code[begin : match.start()].strip())
            begin = match.end()
    return [*arguments, code[begin:end].strip()][1:]


def _edit_of(call: _Call, part: str, names: Names) -> str | None:
    """The text that replaces a statement in a part; None to keep the statement."""
    if part == "cpu" or names.defines:
        gives_way = part == "cpu" and call.key == "CUDA" and call.is_native
        return "" if gives_way else None
    if not call.function or call.key not in ("", "CUDA"):
        return ""  # the part for the CPU has it for both
    if call.key:
        implemented = f'{call.library}.impl("{call.op}", {call.function});'
        return implemented if call.defines else None
    # For a function that is defined for all devices PyTorch differentiates the ops that it calls.
    return " ".join(
        f'{call.library}.impl("{call.op}",'
        f" torch::dispatch(c10::DispatchKey::{key}, {call.function}));"
        for key in ("CUDA", "AutogradCUDA")
    )


def _end(text: str, registration: Registration) -> int:
    plain = blank(text)
    brace = plain.find("{", registration.end)
    return closing(plain, brace) or len(text)
