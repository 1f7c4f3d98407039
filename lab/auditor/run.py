"""`lab.audit`: try every trap on an op.

    report = lab.audit(softplus, x, reference=torch.nn.functional.softplus)
    report            # a row for each trap: text, or a table in a notebook
    assert report.ok  # in a test

`lab.auditor.traps` has the list, `docs/audit.md` what each row means.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

import jitload
import reference as references
from lab.auditor.example import FOUR_BITS, Call
from lab.auditor.process import run_apart
from lab.auditor.report import Audit, Row
from lab.auditor.rows import subject, tried
from lab.auditor.traps import TRAPS, Trap
from lab.measure.progress import progress

SECONDS = 60.0  # limit for one trap, after which its process is ended


def audit(
    function: Callable,
    inputs: Tensor | tuple | list | dict | None = None,
    *,
    reference: Callable | None = None,
    shapes: dict[str, str] | None = None,
    sources: Iterable[str | Path] | None = None,
    only: Iterable[str] | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
    isolated: bool = True,
) -> Audit:
    """Try every known trap on an op, and report the ones it fell into.

    function: anything that takes and returns tensors: an op of kernels/, a Python function that
        launches kernels, an op of torch.library, a function of an extension.
    inputs: the arguments of one valid call: a tensor, a tuple of arguments, or a dict by name. The
        ops of reference.py need none.
    reference: the same function in PyTorch ops, with the same arguments; it also runs in float64.
    shapes: each tensor's shape in letters, as in {"x": "rows cols", "scale": "rows 1"}, where a
        number is fixed; for integers also their limit: "rows, int64 < cols", or "<= cols" for
        lengths. By default the audit infers from the reference which sizes belong together.
    sources: files of the kernels, if they were not compiled here.
    only: names or sections of traps; default all.
    seed: for all random inputs.
    seconds: limit for one trap.
    isolated: use a separate process, which may crash or hang. False, or a function that cannot be
        sent there, runs in this one.

    Raises:
        TypeError, ValueError: reference or example is missing, or the reference fails on it.
    """
    function, call, reference, shapes = _example(function, inputs, reference, shapes)
    try:
        call.cloned().run(reference)
    except Exception as error:
        raise ValueError(f"the reference fails on the example ({call}): {error}") from None
    texts = {str(p): Path(p).read_text() for p in sources} if sources is not None else None
    chosen = _chosen(only)
    what = _name(function)
    request = (function, call, reference, shapes, texts, seed)
    if isolated:
        try:
            with progress(len(chosen)) as step:
                rows, notes = run_apart(request, [it.key for it in chosen], seconds, step)
            return Audit(what, rows, notes)
        except (pickle.PicklingError, AttributeError, TypeError, ImportError) as error:
            note = f"in this process, for the op cannot be sent to another one: {error}"[:200]
            return Audit(what, *_here(request, chosen, [note]))
    return Audit(what, *_here(request, chosen, []))


def _here(request: tuple, chosen: list[Trap], notes: list[str]) -> tuple[list[Row], list[str]]:
    made = subject(request)
    rows = []
    with progress(len(chosen)) as step:
        for trap in chosen:
            step(trap.key)
            rows += tried(made, [trap])
    return rows, notes + made.notes


def _chosen(only: Iterable[str] | None) -> list[Trap]:
    if only is None:
        return TRAPS
    names = {only} if isinstance(only, str) else set(only)
    known = {name for it in TRAPS for name in (it.name, it.section, it.key)}
    if unknown := sorted(names - known):
        raise ValueError(
            f"only: there is no trap {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    return [it for it in TRAPS if names & {it.name, it.section, it.key}]


def _example(
    function: Callable, inputs: object, reference: Callable | None, shapes: dict | None
) -> tuple[Callable, Call, Callable, dict | None]:
    if not callable(function):
        raise TypeError(f"function: {function!r} cannot be called")
    known = references.OPS.get(getattr(function, "__name__", ""))
    module = getattr(function, "__module__", "").split(".")
    ours = known and (module[0], module[-1]) == ("kernels", known.name)
    declared = ours and shapes is None
    if ours:
        options = known.options[0]
        shapes = (
            {n: s for n, s in known.shapes.items() if n not in options}
            if shapes is None
            else shapes
        )
        limits = {
            n: f"{shapes[n]}, int64 < {limit}" for n, limit in known.limits.items() if n in shapes
        }
        shapes = (shapes or {}) | limits
        if inputs is None:
            rows, cols = 12, 72
            given = known.inputs(rows, cols, device=jitload.device(), without=options)
            inputs = given | options
        reference = known.function if reference is None else reference
    if reference is None:
        raise TypeError(
            "reference: wanted is a function of the same arguments, made of PyTorch's ops, as in"
            " lab.audit(softplus, x, reference=torch.nn.functional.softplus)"
        )
    if inputs is None:
        raise TypeError("inputs: wanted are the arguments of one right call, as in (x, weight)")
    if isinstance(inputs, dict):
        call = Call.of(function, (), inputs)
    else:
        args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        call = Call.of(function, args, {})
    if not call.tensors:
        raise TypeError("inputs: there is no tensor among them")
    if declared and not all(_has_rank(call.leaves[i], shapes, call.names[i]) for i in call.tensors):
        shapes = None
    call = call.mapped(lambda t: t.detach())
    packed = [i for i in call.tensors if call.leaves[i].dtype == FOUR_BITS]
    if packed:
        call = call.mapped(lambda t: t.view(torch.uint8), packed)
        function, reference = _Packed(function, packed), _Packed(reference, packed)
    return function, call, reference, shapes


def _has_rank(t: Tensor, shapes: dict[str, str], name: str) -> bool:
    return t.dim() == len(shapes.get(name, "").partition(",")[0].split())


class _Packed:
    """A function of bytes in place of one of four-bit floats, which PyTorch cannot draw or copy.

    places: the indices of those tensors among the leaves of the arguments.
    """

    def __init__(self, function: Callable, places: list[int]) -> None:
        self.function, self.places = function, places
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__module__ = getattr(function, "__module__", None)

    def __call__(self, *args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        for i in self.places:
            leaves[i] = leaves[i].view(FOUR_BITS)
        args, kwargs = tree_unflatten(leaves, spec)
        return self.function(*args, **kwargs)


def _name(function: Callable) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    name = name or str(function)
    return name if module in (None, "__main__") or "." in name else f"{module}.{name}"
