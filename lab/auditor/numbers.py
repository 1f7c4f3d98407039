"""Numerical traps: error, sizes, types, scales, special values."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor

from lab.auditor import cases
from lab.auditor.example import Call
from lab.auditor.judging import Judgement, alike, computable, largest_of, results
from lab.auditor.subject import Found, NotRun, Refused, Subject, poisoned

LARGEST = 1 << 18  # limit on the elements of a call with drawn sizes
LONG_ENOUGH = 0.05  # seconds that a call takes more than one of half the size: more than noise
SPAN = 2.0**12  # how far below a type's largest number sums and products do not overflow
MOST_SECONDS = 20.0  # limit on all calls with sizes beyond a grid


def error(subject: Subject) -> str:
    """Draws of the example's sizes in each type, until zeros and constants would be rejected."""
    try:
        subject.results(subject.example.call)
    except Refused as error:
        raise Found(f"it refuses the example: {error}", subject.example.call) from None
    telling: set[str] = set()
    known: set[str] = set()
    worst: list[Judgement] = []
    for dtype in subject.dtypes:
        for seed, scale in itertools.product(range(3), (1.0, 4.0)):
            call = _drawn(subject, {}, dtype, seed, scale)
            if call is None:
                continue
            for it in subject.must_be_right(call, subject.has_gradient and _in_range(call)):
                known.add(it.name)
                telling |= {it.name} if it.tells else set()
                worst += [it] if it.worse else []
            if telling == known and seed:
                break
    if worst:
        most = max(worst, key=lambda it: it.off / it.allowed if it.allowed else 0)
        raise Found(f"less exact than PyTorch: {most}", subject.example.call, note=True)
    types = ", ".join(str(it).removeprefix("torch.") for it in subject.dtypes)
    blind = sorted(known - telling)
    said = f"in {types}"
    if blind:
        said += f"; a constant would pass for {', '.join(blind)} here: the reference's is about one"
    return said


def _in_range(call: Call) -> bool:
    return all(bool(call.leaves[i].isfinite().all()) for i in call.floats)


def _drawn(
    subject: Subject,
    sizes: dict[str, int],
    dtype: torch.dtype | None,
    seed: int,
    scale: float = 1.0,
    offset: float = 0.0,
) -> Call | None:
    return subject.example.draw(
        sizes, dtype, subject.seed + 1000 * seed + 7, scale, offset, check=True
    )


def sizes(subject: Subject) -> Iterator[dict[str, int]]:
    """Sizes around the example's, smallest first: one letter at a time, then all at random."""
    letters = subject.example.sizes
    small = {letter: min(size, 3) for letter, size in letters.items()}
    found = [small | {letter: n} for letter in letters for n in cases.SIZES + cases.LARGE_SIZES]
    dice = random.Random(subject.seed)
    found += [{it: dice.choice(cases.SIZES) for it in letters} for _ in range(24)]
    found.sort(key=subject.example.elements)
    return (it for it in found if subject.example.elements(it) <= LARGEST)


def shapes(subject: Subject) -> str:
    """Odd, prime, powers of two plus and minus one, 1, more than one block: in two types."""
    if not subject.example.sizes:
        raise NotRun("the reference takes no other sizes than the example's")
    tried = refused = 0
    why = ""
    drawn = (
        call
        for n, given in enumerate(sizes(subject))
        for dtype in (subject.dtypes[n % 2 % len(subject.dtypes)],)
        if (call := _drawn(subject, given, dtype, n)) is not None
    )
    for call in subject.until(drawn):
        try:
            subject.must_be_right(call, subject.has_gradient)
            tried += 1
        except Refused as error:
            refused, why = refused + 1, str(error)
    if not tried and refused:
        return f"{refused} shapes refused: {why}"
    return f"{tried} shapes" + (f", {refused} refused: {why}" if refused else "")


def empty(subject: Subject) -> str:
    """A size of 0."""
    return _few(subject, ({letter: 0} for letter in subject.example.sizes), "empty tensors")


def grid(subject: Subject) -> str:
    """More rows than a grid has blocks in y and z, for each size in turn."""
    small = {letter: min(size, 2) for letter, size in subject.example.sizes.items()}
    known = [
        (_would_take(subject, small, letter), letter, small | {letter: cases.MANY_ROWS})
        for letter in small
        if subject.example.elements(small | {letter: cases.MANY_ROWS}) <= 16 * LARGEST
    ]
    given, left_out, left = [], [], MOST_SECONDS
    for seconds, letter, many in sorted(known, key=lambda it: it[0]):
        if seconds > left:
            left_out.append(f"{letter} = {cases.MANY_ROWS} would take some {seconds:.0f} s")
        else:
            given.append(many)
            left -= seconds
    if left_out and not given:
        raise NotRun("; ".join(left_out))
    return "; ".join((_few(subject, iter(given), "sizes beyond 65535"), *left_out))


def _would_take(subject: Subject, small: dict[str, int], letter: str) -> float:
    """Estimated seconds of a call with MANY_ROWS of a size, extrapolated from smaller ones:
    quadratic ops would take minutes on the simulator. 0 if the op takes no such size.

    Growth is measured in CPU seconds, then scaled by how busy the machine is.
    """
    seconds: list[float] = []
    waited = 0.0
    for doublings_left in range(12, 0, -1):
        count = cases.MANY_ROWS >> doublings_left
        if (call := _drawn(subject, small | {letter: count}, None, 1)) is None:
            return 0.0
        try:
            if not seconds:  # the first call warms up
                subject.must_be_right(call, subject.has_gradient)
            began, began_at = time.process_time(), time.perf_counter()
            subject.must_be_right(call, subject.has_gradient)
        except Refused:
            return 0.0
        seconds.append(time.process_time() - began)
        waited += time.perf_counter() - began_at
        if len(seconds) > 2 and seconds[-1] - seconds[-2] > LONG_ENOUGH:
            break
    # Extrapolate differences: part of the time does not depend on the size.
    before, last = (after - first for first, after in itertools.pairwise(seconds[-3:]))
    growth = min(max(last / max(before, 1e-9), 1.0), 8.0)  # from constant to cubic
    busy = max(waited / max(sum(seconds), 1e-9), 1.0)
    return busy * (seconds[-1] + sum(last * growth**n for n in range(1, doublings_left + 1)))


def _few(subject: Subject, given: Iterator[dict[str, int]], what: str) -> str:
    tried, why = 0, ""
    for each in given:
        if (call := _drawn(subject, each, None, 1)) is None:
            continue
        try:
            subject.must_be_right(call, subject.has_gradient)
            tried += 1
        except Refused as error:
            why = str(error)
    if not tried and not why:
        raise NotRun(f"the reference takes no {what}")
    refused = f"refused: {why}" if why else ""
    return "; ".join(filter(None, (f"{tried} of them" if tried else "", refused)))


def scales(subject: Subject) -> str:
    """Small and large values, and values far from zero."""
    tried = 0
    given = [(None, *it) for it in itertools.product(cases.SCALES, cases.OFFSETS)]
    given += [(torch.float16, 1e3, 0.0)] if torch.float16 in subject.dtypes else []  # squares: inf
    for dtype, scale, offset in given:
        call = _drawn(subject, {}, dtype, 2, scale, offset)
        if call is not None and subject.example.call.floats:
            try:
                subject.must_be_right(call, subject.has_gradient)
                tried += 1
            except Refused:
                continue
    if not tried:
        raise NotRun("it takes no floats")
    return f"{tried} scales and offsets"


def special(subject: Subject) -> str:
    """NaN, infinities, zeros and subnormals: as PyTorch in this type or in float64."""
    example = subject.example
    if not example.call.floats:
        raise NotRun("it takes no floats")
    note = None
    for dtype in subject.dtypes[:2]:
        for place in example.call.floats:
            rows = [[v] for v in cases.special_values(dtype)] + list(cases.SPECIAL_ROWS)
            for values in rows:
                call = _drawn(subject, {}, dtype, 3)
                if call is None or not call.leaves[place].numel():
                    continue
                flat = call.leaves[place].view(-1)
                flat[: len(values)] = flat.new_tensor(values[: flat.numel()])
                note = _same_kind(subject, call) or note
    if note:
        raise note
    return ""


def _same_kind(subject: Subject, call: Call) -> Found | None:
    """Raises Found where a NaN or an infinity is missing or unexpected.

    Returns it as a note where the float64 reference does not overflow: that does not tell what
    arithmetic in the call's own type would do on the way; and where a NaN stands for something too
    large: x * (w * s) - mean * (w * s) is NaN where (x - mean) * s * w is infinite, and so is x -
    max(x) where x is, from which softmax and losses are computed.
    """
    try:
        got = subject.results(call)
    except Refused:
        return None
    note = None
    wants = [_reference(subject, call)] * 2
    with suppress(Exception):  # the reference refuses float64
        wants[1] = _reference(subject, call.to(torch.float64))
    for name, y in got.items():
        if not y.is_floating_point() or any(name not in want for want in wants):
            continue
        y = computable(y)
        theirs = [computable(want[name]) for want in wants if want[name].shape == y.shape]
        if len(theirs) < 2 or not theirs[0].is_floating_point():
            continue
        nan = torch.stack([it.isnan() for it in theirs])
        infinite = theirs[0].isinf() & theirs[1].to(y.dtype).isinf()
        finite = theirs[0].isfinite() & theirs[1].to(y.dtype).isfinite()
        wrong = (nan.all(0) | ~nan.any(0)) & (y.isnan() != nan[0])
        if bool((wrong & y.isinf()).any()):  # infinities of both signs, or 0 times infinity
            wrong &= ~y.isinf() | _counts(subject, call, name, _is_nan)
        wrong |= infinite & ~nan.any(0) & (y != theirs[0])
        most = torch.finfo(y.dtype).max
        overflowed = finite & y.isinf() & (theirs[0].abs() < most / 16)
        lost = wrong & y.isnan() & (infinite | finite & (theirs[0].abs() > most / SPAN))
        if bool(lost.any()):
            _right_in_range(subject, call)
        wider = theirs[0].itemsize > y.itemsize
        in_float64 = "the reference computes in float64, so it does not overflow on the way"
        for places, why in (
            (wrong & ~lost, ""),
            (overflowed, in_float64 if wider else ""),
            (
                lost,
                "with a smaller number in its place it is right; on the way it adds infinities"
                " of both signs, or multiplies one by 0",
            ),
        ):
            if not places.any() or not (places := places & _counts(subject, call, name)).any():
                continue
            at = int(places.flatten().int().argmax())
            mine, wanted = (it.flatten()[at].item() for it in (y, theirs[0]))
            said = f"{name}[{at}] is {mine}, PyTorch's {wanted}, where {_odd(call)}"
            if not why:
                raise Found(said, call)
            note = note or Found(f"{said}; {why}", call, note=True)
    return note


def _counts(
    subject: Subject, call: Call, name: str, of: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Mask of the elements of a result that depend on special values, or those that `of` selects.

    Elsewhere PyTorch may still give NaN from 0 times NaN, as for a key that a mask hides.
    """
    of = of or _special
    odd = [i for i in call.floats if bool(of(call.leaves[i].view(-1)[:2]).any())]
    found = [
        computable(_reference(subject, call.mapped(partial(_put, value, of), odd))[name])
        for value in (1.0, -1.0, 0.25, 100.0, -100.0)
    ]
    nan = found[0].isnan()
    return torch.stack([(it != found[0]) & ~(nan & it.isnan()) for it in found[1:]]).any(0)


def _right_in_range(subject: Subject, call: Call) -> None:
    """Raises Found unless the op is right with smaller numbers in the place of special values: the
    largest for which the reference does not overflow."""

    def within(power: float, t: Tensor) -> Tensor:
        flat, most = t.clone().view(-1), (torch.finfo(t.dtype).max / SPAN) ** power
        flat[:2] = computable(flat[:2]).clamp(-most, most).to(t.dtype)
        return flat.view(t.shape)

    def overflows(power: float) -> bool:
        smaller = call.mapped(partial(within, power), call.floats)
        wanted = map(computable, _reference(subject, smaller).values())
        return any(bool(it.isinf().any()) for it in wanted if it.is_floating_point())

    power = 1.0
    if overflows(power):
        power, above = 0.0, 1.0
        for _ in range(10):
            middle = (power + above) / 2
            power, above = (power, middle) if overflows(middle) else (middle, above)
    smaller = call.mapped(partial(within, power), call.floats)
    got, wanted = subject.results(smaller), _reference(subject, smaller)
    if any(not _near(y, wanted[name]) for name, y in got.items() if name in wanted):
        subject.must_be_right(smaller)


def _near(a: Tensor, b: Tensor) -> bool:
    """Whether two results are the same to a twentieth: other rows judge digits."""
    a, b = computable(a).double(), computable(b).double()
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.05, equal_nan=True)


def _special(t: Tensor) -> Tensor:
    """Mask of the elements that are special values."""
    wide = computable(t).double()
    return ~wide.isfinite() | torch.isin(wide, wide.new_tensor(cases.special_values(t.dtype)))


def _is_nan(t: Tensor) -> Tensor:
    return computable(t).isnan()


def _put(value: float, of: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    flat = t.clone().view(-1)
    first = computable(flat[:2])
    flat[:2] = torch.where(of(flat[:2]), first.new_tensor(value), first).to(t.dtype)
    return flat.view(t.shape)


def _odd(call: Call) -> str:
    firsts = [(call.names[i], call.leaves[i].view(-1)[:2]) for i in call.floats]
    name, first = next(it for it in firsts if bool(_special(it[1]).any()))
    return f"{name} begins with {', '.join(f'{v:g}' for v in first.tolist())}"


def _reference(subject: Subject, call: Call) -> dict[str, Tensor]:
    return results(subject.reference, call.cloned())


def tiny(subject: Subject) -> str:
    """Subnormals and the smallest normal numbers, as inputs and as their squares, do not become
    zero or NaN."""
    if not subject.example.call.floats:
        raise NotRun("it takes no floats")
    call = _drawn(subject, {}, None, 4)
    if call is None:
        raise NotRun("the reference refuses such a call")
    tiny = 8 * torch.finfo(subject.example.dtype).tiny

    def small(largest: float, t: Tensor) -> Tensor:
        wide = computable(t)
        return (wide * (largest / max(largest_of(wide), 1e-30))).to(t.dtype)

    for largest in (tiny, tiny**0.5):
        try:
            subject.must_be_right(call.mapped(partial(small, largest), call.floats[:1]))
        except Refused as error:
            return f"refused: {error}"
    return ""


def same_bits(subject: Subject) -> str:
    """Three runs give the same bits, whatever the memory held before."""
    runs = []
    call = _drawn(subject, {}, None, 5) or subject.example.call
    arriving = subject.arriving(call) if subject.has_gradient else []
    for turn in range(4):
        junk = [torch.full((1 << 12,), float(turn)) for _ in range(4)]
        runs.append(subject.with_gradients(call, arriving) if arriving else subject.results(call))
        del junk
    for name, first in runs[0].items():
        for other in runs[1:]:
            if not _equal(first, other[name]):
                near = alike(first, other[name])
                raise Found(
                    f"{name} has other bits on another run of the same call", call, note=near
                )
    return ""


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)
    )


def unwritten(subject: Subject) -> str:
    """Outputs and workspaces start as NaN: every element must be written before it is read."""
    tried = 0
    for given in itertools.islice(sizes(subject), 4, 40, 6):
        call = _drawn(subject, given, None, 6)
        if call is None:
            continue
        arriving = subject.arriving(call) if subject.has_gradient else []
        zeros = [torch.zeros_like(it) for it in arriving]
        try:
            for grads in (arriving, zeros)[: 1 if tried or not arriving else 2]:
                with poisoned():
                    got = subject.with_gradients(call, grads) if grads else subject.results(call)
                for it in subject.judgements(call, got, grads):
                    if it.wrong:
                        raise Found(f"with NaN in fresh memory {it}", call)
        except Refused:
            continue
        tried += 1
    return f"{tried} shapes"


def parameters(subject: Subject) -> str:
    """Numeric arguments: other values than the example's, and an integer for a float."""
    call = subject.example.call
    floats = [i for i, it in enumerate(call.leaves) if type(it) is float]
    if not floats:
        raise NotRun("it takes no float besides tensors")
    for place, value in itertools.product(floats, (2, 0.1, 1 / 3, 3e-3)):
        other = call.with_leaves(value if i == place else it for i, it in enumerate(call.leaves))
        if not subject.example.takes(other):
            continue
        try:
            subject.must_be_right(other)
        except Refused as error:
            if isinstance(value, float):
                raise Found(f"{call.names[place]}={value!r} is refused: {error}", other) from None
    return ""
