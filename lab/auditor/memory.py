"""Traps of memory: strides, offsets, aliases, writes to read-only inputs."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from lab.auditor import cases
from lab.auditor.example import Call
from lab.auditor.judging import NoGradient, results, with_gradients
from lab.auditor.subject import Found, NotRun, Refused, Subject


def layout(name: str, subject: Subject) -> str:
    """One layout, for all inputs at once and for each alone: right, or refused."""
    change, example = cases.LAYOUTS[name], subject.example
    letters = list(example.sizes)
    drawn = [{}, {letters[-1]: 64} if letters else {}, {letters[-1]: 7} if letters else {}]
    refusal, tried = "", 0
    for number, given in enumerate(drawn):
        for dtype in subject.dtypes[:2]:
            base = example.draw(given, dtype, subject.seed + 11 + number, check=True)
            if base is None:
                continue
            if number:
                try:
                    subject.results(base)
                except Refused:
                    continue  # the op refuses these sizes in any layout
            for only in [base.tensors, *([i] for i in base.tensors if len(base.tensors) > 1)]:
                call = base.with_leaves(
                    _laid_out(change, it, i in example.offsets) if i in only else it
                    for i, it in enumerate(base.leaves)
                )
                if not any(_differs(call.leaves[i], base.leaves[i]) for i in only):
                    continue
                if not subject.example.takes(call):
                    continue
                try:
                    subject.must_be_right(call, subject.has_gradient)
                    tried += 1
                except Refused as error:
                    refusal = str(error)
    if not tried and not refusal:
        raise NotRun("no input can lie so")
    return "" if tried and not refusal else f"refused: {refusal}"


def _laid_out(change: cases.Layout, t: Tensor, as_it_is: bool) -> Tensor:
    """as_it_is: keep t as it is where the layout would repeat values that must differ."""
    new = change(t)
    return t if as_it_is and not torch.equal(new, t) else new


def _differs(a: Tensor, b: Tensor) -> bool:
    return a.stride() != b.stride() or a.storage_offset() != b.storage_offset()


def arriving(name: str, subject: Subject) -> str:
    """One layout of the arriving gradients, which gradcheck never varies."""
    _need_gradient(subject)
    change, example = cases.LAYOUTS[name], subject.example
    letters = list(example.sizes)
    for number, given in enumerate([{}, {letters[-1]: 64} if letters else {}]):
        call = example.draw(given, None, subject.seed + 21 + number, check=True)
        if call is None:
            continue
        grads = [change(g) if g.dim() else g for g in subject.arriving(call)]
        try:
            subject.must_be_right(call, True, grads)
        except Refused as error:
            return f"refused: {error}"
    return ""


def _need_gradient(subject: Subject) -> None:
    if not subject.has_gradient:
        raise NotRun("it has no gradient")


def inputs_unwritten(subject: Subject) -> str:
    """A call leaves the bits of its inputs and arriving gradients unchanged."""
    call = subject.example.draw(seed=subject.seed + 31, check=True) or subject.example.call
    meant = _written_by(subject.reference, call, [])
    grads = subject.arriving(call) if subject.has_gradient else []
    with subject.speaking(call):
        written = _written_by(subject.function, call, grads)
    for name in written:
        if name not in meant:
            raise Found(f"it writes to {name}", call)
    return ""


def _written_by(function: object, call: Call, grads: list[Tensor]) -> list[str]:
    mine = call.cloned()
    before = {name: mine.leaves[i].clone() for i, name in _tensors(mine)}
    kept = [g.clone() for g in grads]
    if grads:
        leaves = mine.mapped(lambda t: t.detach().requires_grad_(), mine.differentiable)
        outputs = [y for y in leaves.run(function) if y.is_floating_point()]
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=False) if y.requires_grad]
        torch.autograd.grad(
            [y for y, _ in pairs],
            [leaves.leaves[i] for i in mine.differentiable],
            [g for _, g in pairs],
            allow_unused=True,
        )
    else:
        with torch.no_grad():
            mine.run(function)
    written = [name for i, name in _tensors(mine) if not _same(mine.leaves[i], before[name])]
    changed = any(not _same(a, b) for a, b in zip(grads, kept, strict=True))
    return written + ["the arriving gradient"] * changed


def _tensors(call: Call) -> list[tuple[int, str]]:
    return [(i, call.names[i]) for i in call.tensors]


def _same(a: Tensor, b: Tensor) -> bool:
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def not_aliased(subject: Subject) -> str:
    """An output shares no memory with an input, nor with the output of another call."""
    first = subject.example.draw(seed=subject.seed + 41, check=True) or subject.example.call
    second = subject.example.draw(seed=subject.seed + 42, check=True) or subject.example.call
    mine, meant = first.cloned(), first.cloned()
    with torch.no_grad(), subject.speaking(first):
        outputs = mine.run(subject.function)
    wanted = meant.run(subject.reference)
    shared = _shared(outputs, mine) - _shared(wanted, meant)
    if shared:
        number, name = min(shared)
        raise Found(f"output {number} shares its memory with {name}", first)
    kept = [y.clone() for y in outputs]
    with torch.no_grad(), subject.speaking(second):
        later = second.cloned().run(subject.function)
    for y, before in zip(outputs, kept, strict=True):
        if not _same(y, before):
            raise Found("a second call writes into the output of the first", second)
    addresses = {y.untyped_storage().data_ptr() for y in outputs if y.numel()}
    if addresses & {y.untyped_storage().data_ptr() for y in later if y.numel()}:
        raise Found("two calls return the same memory", second)
    if subject.has_gradient:
        _gradients_of_their_own(subject, first, second)
    return ""


def _gradients_of_their_own(subject: Subject, first: Call, second: Call) -> None:
    """A second backward pass leaves the gradients of the first unchanged."""
    grads = subject.with_gradients(first, subject.arriving(first))
    kept = {name: y.clone() for name, y in grads.items()}
    subject.with_gradients(second, subject.arriving(second))
    for name, y in grads.items():
        if name.startswith("gradient") and not _same(y, kept[name]):
            raise Found(f"a second backward pass writes into the {name} of the first", second)


def _shared(outputs: list[Tensor], call: Call) -> set[tuple[int, str]]:
    owner = {call.leaves[i].untyped_storage().data_ptr(): name for i, name in _tensors(call)}
    return {
        (number, owner[y.untyped_storage().data_ptr()])
        for number, y in enumerate(outputs)
        if y.numel() and y.untyped_storage().data_ptr() in owner
    }


def cached(subject: Subject) -> str:
    """Other values at the same addresses, in the same tensor objects and in new ones with the same
    version counters, must give other results."""
    call = subject.example.draw(seed=subject.seed + 51, check=True) or subject.example.call
    for turn in range(5):
        other = subject.example.draw(seed=subject.seed + 52 + turn, check=True)
        if other is None:
            raise NotRun("the reference refuses random values")
        with torch.no_grad():
            for i in call.tensors:
                call.leaves[i].copy_(other.leaves[i])
        given = call.mapped(_again) if turn > 2 else call
        with subject.speaking(given):
            got = results(subject.function, given)
        for it in subject.judgements(other, got, []):
            if it.wrong:
                raise Found(f"after a change of its inputs in place {it}", call)
    return ""


def _again(t: Tensor) -> Tensor:
    """Another tensor in the same memory, as the caching allocator would reuse it."""
    new = torch.empty(0, dtype=t.dtype, device=t.device)
    return new.set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())


def leaks(subject: Subject) -> str:
    """A hundred calls leak no memory, with and without gradients."""
    call = subject.example.call
    recorded = call.mapped(lambda t: t.detach().requires_grad_(), call.differentiable)

    def without() -> None:
        subject.results(call)

    def with_graph() -> None:
        with subject.speaking(call):
            recorded.run(subject.function)

    def living() -> int:
        gc.collect()
        return len(gc.get_objects())

    for once in (without, with_graph) if subject.has_gradient else (without,):
        once()
        before = living()
        for _ in range(100):
            once()
        if (more := living() - before) > 90:
            raise Found(f"{more} objects are left of a hundred calls", call)
    return ""


def saved(subject: Subject) -> str:
    """An input changed between forward and backward: an error, or the right gradient."""
    _need_gradient(subject)
    call = subject.example.draw(seed=subject.seed + 61, check=True) or subject.example.call
    grads = subject.arriving(call)

    def change(leaves: Call) -> None:
        """Not by one number for all: what takes a mean off its inputs would not notice."""
        with torch.no_grad():
            for t in (leaves.leaves[i] for i in leaves.floats):
                t.copy_(1.5 * t.reshape(-1).roll(1).view(t.shape) + 1.5)

    try:
        got = with_gradients(subject.function, call.cloned(), grads, dispose=change)
    except (RuntimeError, NoGradient):
        return "an error"
    for it in subject.judgements(call, got, grads):
        if it.wrong and it.name.startswith("gradient"):
            raise Found(f"x.copy_() between forward and backward goes unnoticed: {it}", call)
    return ""
