"""Whether results are right: their error against float64, compared with PyTorch's in that type."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from lab.auditor.example import Call, clone
from lab.measure.error import absolute_error

CONDITION = 64  # a result that rounding moves by this many ULP is mostly noise
TIMES, HALVES = 3, 4  # limits: times PyTorch's error, plus half ULPs of the largest element
WRONG = 8  # times the limit: certainly wrong

Results = dict[str, Tensor]


class NoGradient(Exception):
    """The results lead to no gradient."""


def results(function: Callable, call: Call) -> Results:
    """The tensors that the function returns, named "output", or "output 0" and so on."""
    with torch.no_grad(), _within(function, call):
        found = call.run(function)
    return named(found)


def _within(function: Callable, call: Call) -> AbstractContextManager:
    """The context in which a function that the audit watches records that it is running."""
    return function.at_work(call) if isinstance(function, Watched) else nullcontext()


class Watched:
    """A reference whose crashes are told from the op's and are not repeated.

    mark: the file that names the call while it runs. avoid: calls that it refuses from now on.
    """

    def __init__(self, function: Callable, mark: Path, avoid: set[str]) -> None:
        self.function, self.mark, self.avoid = function, mark, avoid

    def __call__(self, *args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        with self.at_work(Call(leaves, spec, [""] * len(leaves))):
            return self.function(*args, **kwargs)

    @contextmanager
    def at_work(self, call: Call) -> Iterator[None]:
        tensors = [call.leaves[i] for i in call.tensors]
        name = " ".join(f"{t.dtype!s}{list(t.shape)}".replace(" ", "") for t in tensors)
        if name in self.avoid:
            raise ValueError("the reference ends its process on such a call")
        before = self.mark.exists()
        if not before:
            self.mark.write_text(name)
        try:
            yield
        except Exception:
            if gpu_is_lost():
                os._exit(1)  # the mark stays: the next process skips this call
            raise
        finally:
            if not before:
                self.mark.unlink(missing_ok=True)


def gpu_is_lost() -> bool:
    """Whether a kernel's fault has made the GPU unusable for this process."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def named(outputs: list[Tensor]) -> Results:
    if len(outputs) == 1:
        return {"output": outputs[0].detach()}
    return {f"output {i}": it.detach() for i, it in enumerate(outputs)}


def with_gradients(
    function: Callable,
    call: Call,
    arriving: list[Tensor],
    wanted: list[int] | None = None,
    dispose: Callable[[Call], None] | None = None,
) -> Results:
    """The results, and "gradient of x" for each differentiable input, or for those at `wanted`.

    arriving: the gradient of each floating-point output. dispose: called with the inputs between
    the two passes. Raises NoGradient where the outputs do not depend on the inputs.
    """
    with _within(function, call):
        return _with_gradients(function, call, arriving, wanted, dispose)


def _with_gradients(
    function: Callable,
    call: Call,
    arriving: list[Tensor],
    wanted: list[int] | None,
    dispose: Callable[[Call], None] | None,
) -> Results:
    wanted = call.differentiable if wanted is None else wanted
    leaves = call.mapped(lambda t: t.detach().requires_grad_(), wanted)
    outputs = leaves.run(function)
    ends = [y for y in outputs if y.is_floating_point()]
    # Copies: the op may write to its arriving gradients, and the truth is computed from them later.
    given = [(y, clone(g)) for y, g in zip(ends, arriving, strict=False) if is_recorded(y)]
    if not given:
        raise NoGradient("its results lead to no gradient")
    if dispose:
        dispose(leaves)
    grads = torch.autograd.grad(
        [y for y, _ in given],
        [leaves.leaves[i] for i in wanted],
        [g.to(y.dtype) for y, g in given],
        allow_unused=True,
    )
    found = named(outputs)
    for i, grad in zip(wanted, grads, strict=True):
        x = leaves.leaves[i]
        found[f"gradient of {call.names[i]}"] = torch.zeros_like(x) if grad is None else grad
    return found


def is_recorded(y: Tensor) -> bool:
    """Whether autograd recorded y. PyTorch marks an op without a gradient by a node that warns."""
    return y.grad_fn is not None and not y.grad_fn.name().endswith("NotImplemented")


def noise(outputs: list[Tensor], seed: int = 0) -> list[Tensor]:
    """Random gradients for the floating-point outputs."""
    dice = torch.Generator().manual_seed(seed + 1)
    return [
        torch.randn(y.shape, dtype=torch.float64, generator=dice).to(y.dtype).to(y.device)
        for y in outputs
        if y.is_floating_point()
    ]


@dataclass(frozen=True)
class Judgement:
    """One result: how far off it is, how far it may be, and an element of it.

    tells: whether the same limit would reject zeros, or one number everywhere. summed: how far off
    sums may be if their terms are added one by one.
    """

    name: str
    off: float
    allowed: float
    pytorchs: float
    tells: bool
    place: str
    summed: float = 0.0

    @property
    def wrong(self) -> bool:
        return not self.off <= max(WRONG * self.allowed, self.summed)

    @property
    def worse(self) -> bool:
        return not self.off <= max(self.allowed, self.summed)

    def __str__(self) -> str:
        if math.isnan(self.off):
            return f"{self.name}: {self.place}"
        return (
            f"{self.name} is off by {self.off:.3g}, PyTorch by {self.pytorchs:.3g};"
            f" {max(self.allowed, self.summed):.3g} is allowed: {self.place}"
        )


def judged(name: str, got: Tensor, truth: Tensor, bar: Tensor, bar_truth: Tensor) -> Judgement:
    """truth: the reference's result in float64. bar: its result in the type of `got` (in float32
    where that is float64); bar_truth: the truth for that bar."""
    if got.shape != truth.shape:
        place = f"it has the shape {list(got.shape)}; wanted is {list(truth.shape)}"
        return Judgement(name, math.nan, 0, 0, True, place)
    if not truth.numel():
        return Judgement(name, 0, 0, 0, False, "")
    if not got.is_floating_point():
        return _judged_integers(name, got, truth, bar)
    kind = torch.finfo(got.dtype)
    got, truth, bar, bar_truth = map(computable, (got, truth, bar, bar_truth))
    if not bar.is_floating_point():
        bar, bar_truth = bar.to(got.dtype), bar_truth.double()
    eps = kind.eps
    scale = torch.finfo(got.dtype).eps / torch.finfo(bar.dtype).eps
    theirs = scale * absolute_error(bar, bar_truth.double())
    off = absolute_error(got, truth.double())
    same_as_pytorch = (got == bar.to(got.dtype)) | (got.isnan() & bar.isnan())
    overflowed = ~bar.isfinite() & truth.isfinite()  # PyTorch overflows in this type: no bar
    off = off.masked_fill(same_as_pytorch | overflowed, 0)
    finite = truth[truth.isfinite()].double()
    largest = finite.abs().max().item() if finite.numel() else 0.0
    largest = min(largest, kind.max)
    unit = max(_power(largest) * eps, kind.smallest_normal * eps) / 2
    bound = theirs[theirs.isfinite()]
    pytorchs = bound.max().item() if bound.numel() else 0.0
    allowed = TIMES * pytorchs + HALVES * unit
    at = int(off.flatten().argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), got.shape))
    found, wanted = got[place].item(), truth[place].item()
    said = f"[{', '.join(map(str, place))}] is {found:.6g}, wanted {wanted:.6g}"
    middle = (finite.max() - finite.min()).item() / 2 if finite.numel() else 0.0
    tells = min(largest, middle) > WRONG * allowed
    return Judgement(name, off.max().item(), allowed, pytorchs, tells, said)


def computable(t: Tensor) -> Tensor:
    """The tensor itself, or its float32 copy for one-byte floats, which PyTorch only stores."""
    return t.float() if t.is_floating_point() and t.itemsize == 1 else t


def allowing(found: Judgement, truth: Tensor, changed: Tensor, dtype: torch.dtype) -> Judgement:
    """Allow for a result that consists of rounding errors, as a variance of equal numbers does.

    changed: the truth under Noise. If that moves the result by many ULP of its largest element, the
    last digits mean nothing, even if PyTorch's happen to be right.
    """
    if changed.shape != truth.shape:
        return found
    changed, truth = computable(changed), computable(truth)
    moved = (changed.double() - truth.double()).abs()
    moved = moved[moved.isfinite()]
    finite = truth[truth.isfinite()].abs()
    most = moved.max().item() if moved.numel() else 0.0
    largest = finite.max().item() if finite.numel() else 0.0
    if most <= CONDITION * torch.finfo(dtype).eps * largest:
        return found
    return replace(found, allowed=max(found.allowed, TIMES * most))


def within_sums(found: Judgement, truth: Tensor, moved: Tensor) -> Judgement:
    """Allow for sums whose terms are added one by one.

    moved: the truth under Sums. PyTorch adds pairwise, which is more exact the longer the sum is.
    """
    if moved.shape != truth.shape:
        return found
    off = (computable(moved).double() - computable(truth).double()).abs()
    return replace(found, summed=largest_of(off))


def from_rounded(found: Judgement, x: Tensor, truth: Results, arriving: list[Tensor]) -> Judgement:
    """Allow for a gradient that is computed from the rounded results.

    Many ops save what they return, as tanh does: 1 - y * y is 0 where y rounds to 1. Such a
    gradient is known only to one ULP of y for its x, times the arriving gradient. A gradient made
    of exp(x - y), as that of logsumexp, has a relative error of one ULP of y; at most a thousandth
    is allowed here, because most gradients are not of this form.
    """
    results = [y for name, y in truth.items() if name.startswith("output")]
    floats = [computable(y).double() for y in results if y.is_floating_point()]
    largest = largest_of(computable(x).double())
    given = [computable(g).double() for g in arriving]
    made = sum(largest_of(y) * largest_of(g) for y, g in zip(floats, given, strict=False))
    eps = torch.finfo(x.dtype).eps
    of_itself = min(eps * max(map(largest_of, floats), default=0.0), 1e-3)
    return replace(
        found,
        allowed=max(
            *(found.allowed, eps * made / largest if largest else 0.0),
            of_itself * largest_of(computable(truth[found.name]).double()),
        ),
    )


def largest_of(t: Tensor) -> float:
    """The largest magnitude of its finite elements; 0 where there are none."""
    finite = t[t.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def picks_equal(got: Tensor, theirs: Tensor, inputs: list[Tensor]) -> bool:
    """Whether two results are indices into an input and pick equal elements of it.

    Sorting and the like do not define which of equal elements comes first.
    """
    if got.dtype not in (torch.int64, torch.int32) or got.shape != theirs.shape:
        return False
    for x in inputs:
        for dim in range(x.dim()):
            picked = []
            for index in (theirs.long(), got.long()):
                if index.dim() == x.dim() - 1:
                    index = index.unsqueeze(dim)
                fits = index.dim() == x.dim() and all(
                    a == b
                    for d, (a, b) in enumerate(zip(index.shape, x.shape, strict=True))
                    if d != dim
                )
                if not fits or not index.numel():
                    break
                if int(index.min()) < 0 or int(index.max()) >= x.shape[dim]:
                    break
                places = index.sort(dim).values
                if bool((places.diff(dim=dim) == 0).any()):
                    break  # an element twice: not a permutation
                picked.append(x.gather(dim, index))
            if len(picked) == 2 and torch.equal(*(it.nan_to_num() for it in picked)):
                return True
    return False


def alike(a: Tensor, b: Tensor) -> bool:
    """Whether two runs of one call gave the same results, up to the order of sums."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    rough = torch.finfo(a.dtype).eps ** 0.5
    a, b = computable(a), computable(b)
    a, b = a.nan_to_num().double(), b.nan_to_num().double()
    slack = rough * largest_of(b)
    return torch.allclose(a, b, rtol=rough, atol=slack)


class Noise(TorchDispatchMode):
    """Perturbs the result of each operation by a random relative error."""

    def __init__(self, eps: float, seed: int) -> None:
        super().__init__()
        self.eps, self.dice = eps, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        outputs = op(*args, **(kwargs or {}))
        if any(it.alias_info is not None for it in op._schema.returns):
            return outputs  # views, and results written in place
        return tree_map_only(Tensor, self._moved, outputs)

    def _moved(self, t: Tensor) -> Tensor:
        if t.dtype != torch.float64 or not t.numel():
            return t
        signs = torch.randint(2, t.shape, generator=self.dice).to(t.device) * 2 - 1
        return t * (1 + self.eps * signs)


class Sums(TorchDispatchMode):
    """Perturbs each sum by the bound of its error, with a random sign.

    A sum of n numbers, added and rounded one by one, is off by at most n / 2 * eps times the sum of
    their magnitudes.
    """

    def __init__(self, eps: float, seed: int) -> None:
        super().__init__()
        self.eps, self.dice = eps, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        outputs = op(*args, **(kwargs or {}))
        if not (terms := _terms(op, args, outputs)):
            return outputs
        sizes = op(*tree_map_only(Tensor, torch.abs, args), **(kwargs or {})).abs()
        signs = torch.randint(2, outputs.shape, generator=self.dice).to(outputs.device) * 2 - 1
        return outputs + terms / 2 * self.eps * signs * sizes


def _terms(op: torch._ops.OpOverload, args: tuple, y: object) -> int:
    """How many terms each element of y sums; 0 if the op is not a sum."""
    if not isinstance(y, Tensor) or y.dtype != torch.float64 or not y.numel():
        return 0
    name = op.overloadpacket.__name__
    if name in ("sum", "mean"):
        return args[0].numel() // y.numel()
    if name in ("mm", "bmm", "mv", "dot"):
        return args[0].shape[-1]
    if name in ("addmm", "baddbmm", "addmv"):
        return args[1].shape[-1] + 1
    return args[1][0].numel() if name == "convolution" and args[1].numel() else 0


def _judged_integers(name: str, got: Tensor, truth: Tensor, bar: Tensor) -> Judgement:
    wrong = (got != truth.to(got.dtype)) & (got != bar.to(got.dtype))
    count = int(wrong.sum())
    at = int(wrong.flatten().int().argmax())
    found, wanted = got.flatten()[at].item(), truth.flatten()[at].item()
    place = f"{count} elements differ, the first [{at}]: {found}, wanted {wanted}"
    tells = truth.numel() > 1 and bool((truth != truth.flatten()[0]).any())
    return Judgement(name, float(count), 0, 0, tells, place if count else "")


def _power(largest: float) -> float:
    """The largest power of two that does not exceed it."""
    return 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 0.0
