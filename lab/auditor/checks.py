"""Traps inside of the kernels, as lab.check sees them: forward and backward, also for odd sizes."""

from __future__ import annotations

import torch
from torch import Tensor

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
MOST = 1 << 16  # elements of a call that is checked


def _both(subject: Subject, arriving: list[Tensor]):
    """The op, and its backward pass where it has one."""

    function = subject.function

    def forward_and_backward(*args, **kwargs):
        outputs = torch.utils._pytree.tree_flatten(function(*args, **kwargs))[0]
        ends = [y for y in outputs if isinstance(y, Tensor) and y.requires_grad]
        if ends:
            leaves = torch.utils._pytree.tree_flatten((args, kwargs))[0]
            leaves = [it for it in leaves if isinstance(it, Tensor) and it.requires_grad]
            given = [
                torch.ones_like(y) if i >= len(arriving) else arriving[i].cpu()
                for i, y in enumerate(ends)
            ]
            torch.autograd.grad(ends, leaves, given, allow_unused=True)
        return outputs

    forward_and_backward.__module__ = module_of(function)  # so its globals are the op's, too
    return forward_and_backward


def _calls(subject: Subject) -> list[Call]:
    example = subject.example
    letters = list(example.sizes)
    drawn = [{}] if example.elements({}) <= MOST else []
    # More rows than a loop over them has threads; at last sizes that vectors of 16 bytes fit.
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


def reports(subject: Subject) -> list[tuple[Call, Report]]:
    """Made once, for all rows."""
    known = subject.__dict__.setdefault("_reports", [])
    if known:
        return known
    why = ""
    for call in _calls(subject):
        arriving = subject.arriving(call) if subject.has_gradient else []
        given = call.mapped(lambda t: t.requires_grad_(), call.floats) if arriving else call
        args, kwargs = torch.utils._pytree.tree_unflatten(given.leaves, given.spec)
        try:
            with torch.set_grad_enabled(bool(arriving)):
                known.append(
                    (call, check(_both(subject, arriving), *args, traffic=False, **kwargs))
                )
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


def kind(name: str, subject: Subject) -> str:
    """The findings of one kind: the first with a line, of the smallest call."""
    found = reports(subject)
    for call, report in sorted(found, key=lambda it: sum(t.numel() for t in _tensors(it[0]))):
        for row in report.findings.to_dict("records"):
            mine = row["kind"] in KINDS[name] if name in KINDS else row["kind"] not in KNOWN
            if mine:
                line = f"{row['file']}:{row['line']}" if row["file"] else ""
                hint = hint_for(row) or ""
                message = f"{row['message']}. {hint}".strip()
                raise Found(message, call, line, note=row["severity"] != "error")
    launches = sum(len(report.launches) for _, report in found)
    return f"{launches} launches of {len(found)} calls"


def _tensors(call: Call) -> list[Tensor]:
    return [call.leaves[i] for i in call.tensors]
