"""Traps inside the kernels that lab.check finds: forward and backward, also for odd sizes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from lab.auditor.example import Call
from lab.auditor.judging import NoGradient
from lab.auditor.subject import Found, NotRun, Subject
from lab.checker.captured import module_of
from lab.checker.findings import hint_for
from lab.checker.report import Report
from lab.checker.run import check

KINDS = {
    "races": ("race", "race between streams", "asynchronous race", "wrong parity"),
    "bounds": ("out of bounds", "freed memory", "host access", "ended block"),
    "uninitialised": ("uninitialised", "inactive lane"),
    "misaligned": ("misaligned",),
    "unwritten": ("unwritten",),
}
KNOWN = {kind for kinds in KINDS.values() for kind in kinds}
MOST = 1 << 16  # limit on the elements of a checked call


class Checked(NamedTuple):
    """A call under the checker: its report, and the bytes of each result and gradient."""

    call: Call
    report: Report
    results: list[bytes]


def _checked(subject: Subject, call: Call, thread_order: int = 0) -> Checked:
    """Run the op under the checker, with its backward pass where it has one."""
    arriving = subject.arriving(call) if subject.has_gradient else []
    given = call.mapped(lambda t: t.requires_grad_(), call.differentiable) if arriving else call
    seen: list[Tensor] = []

    def forward_and_backward(*args, **kwargs):
        outputs = tree_flatten(subject.function(*args, **kwargs))[0]
        outputs = [y for y in outputs if isinstance(y, Tensor)]
        ends = [y for y in outputs if y.requires_grad]
        grads: tuple = ()
        if ends:
            leaves = tree_flatten((args, kwargs))[0]
            leaves = [it for it in leaves if isinstance(it, Tensor) and it.requires_grad]
            arrived = [
                torch.ones_like(y) if i >= len(arriving) else arriving[i].cpu()
                for i, y in enumerate(ends)
            ]
            grads = torch.autograd.grad(ends, leaves, arrived, allow_unused=True)
        seen[:] = [it.detach().cpu() for it in (*outputs, *grads) if it is not None]
        return outputs

    # The checker looks for captured tensors in this module: let it see the op's globals.
    forward_and_backward.__module__ = module_of(subject.function)
    args, kwargs = tree_unflatten(given.leaves, given.spec)
    options = {"traffic": False, "thread_order": thread_order}
    with torch.set_grad_enabled(bool(arriving)):
        report = check(forward_and_backward, *args, **options, **kwargs)
    bits = [it.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for it in seen]
    return Checked(call, report, bits)


def _calls(subject: Subject) -> list[Call]:
    example = subject.example
    letters = list(example.sizes)
    drawn = [{}] if example.elements({}) <= MOST else []
    # More rows than a row loop has threads; last, sizes that fit 16-byte vectors.
    for sizes in ((1, 1), (3, 33), (130, 3), (5, 129), (2, 1025), (2, 64)):
        drawn.append({it: sizes[-1 if it == letters[-1] else 0] for it in letters})
    found = [
        example.draw(sizes, None, subject.seed + 101 + n, check=True)
        for n, sizes in enumerate(drawn)
        if example.elements(sizes) <= MOST
    ]
    shifted = [
        it.mapped(lambda t: t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t))
        for it in found[-1:]
        if it is not None
    ]
    return [it for it in found if it is not None] + shifted


def reports(subject: Subject) -> list[Checked]:
    """The checks of all calls, made once and shared by all rows."""
    known = subject.__dict__.setdefault("_reports", [])
    if known:
        return known
    why = ""
    for call in _calls(subject):
        try:
            known.append(_checked(subject, call))
        except NoGradient:
            continue
        except Exception as error:
            why = str(error).partition("\n")[0]
            if "called no kernel" in why:
                break
    if not known:
        nothing = "it calls no kernel that was compiled here" if "called no kernel" in why else why
        raise NotRun(nothing)
    return known


def of_its_threads_order(subject: Subject) -> Call | None:
    """A call whose results change when blocks and threads run in another order. None if there is
    none, if the op has a race, or if it draws random numbers."""
    found = reports(subject)
    if any(len(it.report.findings) for it in found):
        return None
    for it in subject.until(iter(found)):
        for order in (1, 2):
            if _checked(subject, it.call, order).results != it.results:
                same = _checked(subject, it.call).results == it.results
                return it.call if same else None
    return None


def kind(name: str, subject: Subject) -> str:
    """The findings of one kind: the first one that names a line, from the smallest call."""
    found = reports(subject)
    for call, report, _ in sorted(found, key=lambda it: sum(t.numel() for t in _tensors(it.call))):
        for row in report.findings.to_dict("records"):
            mine = row["kind"] in KINDS[name] if name in KINDS else row["kind"] not in KNOWN
            if mine:
                line = f"{row['file']}:{row['line']}" if row["file"] else ""
                hint = hint_for(row) or ""
                message = f"{row['message']}. {hint}".strip()
                raise Found(message, call, line, note=row["severity"] != "error")
    launches = sum(len(it.report.launches) for it in found)
    return f"{launches} launches of {len(found)} calls"


def _tensors(call: Call) -> list[Tensor]:
    return [call.leaves[i] for i in call.tensors]
