"""The op under audit, and the operations that traps need on it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lab.auditor.example import DTYPES, Call, Example
from lab.auditor.judging import (
    Judgement,
    NoGradient,
    Noise,
    Results,
    Sums,
    allowing,
    computable,
    from_rounded,
    judged,
    largest_of,
    noise,
    picks_equal,
    results,
    with_gradients,
    within_sums,
)

# A kernel's failure, not a binding's refusal of its arguments.
# AT_ASSERT in a binding counts as a refusal, unlike one in PyTorch itself.
FAILED = re.compile(
    r"kernel .+, launched at|illegal memory|CUDA error|launch failed|cudaError"
    r"|^the host's code(?:: it)? calls "  # exit or abort: it would end the process
    r"|INTERNAL ASSERT FAILED at \"[^\"]*(?:aten/src|c10|torch/csrc)/"
)
_LINE = re.compile(r"(?:at |, launched at )(\S+\.(?:cu|cuh|h|cpp|py)):(\d+)")


class Found(Exception):
    """A trap that the op fell into.

    example: the smallest call that shows it. line: FILE:NUMBER in a source. note: worth knowing,
    but not an error.
    """

    def __init__(
        self, message: str, example: object = "", line: str = "", note: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.example, self.line, self.note = message, str(example), line, note


class NotRun(Exception):
    """A trap that cannot be tried here, and why."""


class Refused(Exception):
    """The op raised an exception that a user can act on."""


@dataclass
class Subject:
    """An op, an example call of it and the reference.

    seconds: how long one trap may look for further calls to try. sources: texts of the kernels'
    files, by name; if None, a call finds them.
    """

    function: Callable
    example: Example
    seed: int = 0
    seconds: float = 4.0
    sources: dict[str, str] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def reference(self) -> Callable:
        return self.example.reference

    @cached_property
    def dtypes(self) -> list[torch.dtype]:
        """The floating-point types that the op and the reference accept, the example's first."""
        own = self.example.dtype
        if not self.example.call.floats or self.example.mixed:
            return [own]
        others = [it for it in DTYPES if it != own]
        return [own, *(it for it in others if self._takes(self.example.draw({}, it, check=True)))]

    def small(self, most: int, dtype: torch.dtype | None = None, seed: int = 0) -> Call | None:
        """A call with sizes of at most `most`, or with the example's where the op refuses those;
        None where the reference refuses both."""
        small = {letter: min(size, most) for letter, size in self.example.sizes.items()}
        for sizes in (small, {}):
            call = self.example.draw(sizes, dtype, self.seed + seed, check=True)
            if call is not None and (not sizes or self._takes(call)):
                return call
        return None

    def _takes(self, call: Call | None) -> bool:
        try:
            return call is not None and bool(self.results(call))
        except Refused:
            return False
        except Found:
            return True  # the traps will report it

    @cached_property
    def constant(self) -> frozenset[int]:
        """The inputs of which the op or the reference refuses the gradient, as nll_loss does for
        its weights. None if that leaves no others."""
        call = self.example.call
        found = self._refused(self.reference, call) | self._refused(self.function, call)
        return frozenset(found if found < set(call.floats) else ())

    def _refused(self, function: Callable, call: Call) -> set[int]:
        def is_refused(wanted: list[int]) -> bool:
            try:
                with self.speaking(call):
                    with_gradients(function, call.cloned(), self.arriving(call), wanted)
            except Refused:
                return True
            except (NoGradient, Found):
                pass
            return False

        return {i for i in call.floats if is_refused([i])} if is_refused(call.floats) else set()

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the results of both the reference and the op have a gradient."""
        call = self.example.call
        if not self.reference_has_gradient:
            return False
        try:
            with self.speaking(call):
                with_gradients(self.function, call.cloned(), self.arriving(call))
        except (NoGradient, Refused):
            return False
        except Found:
            pass
        return True

    @cached_property
    def reference_has_gradient(self) -> bool:
        try:
            with_gradients(
                self.reference, self.example.call.cloned(), self.arriving(self.example.call)
            )
        except Exception:
            return False
        return True

    # ---- calls

    def arriving(self, call: Call, seed: int = 0) -> list[Tensor]:
        return noise(list(results(self.reference, call.cloned()).values()), seed)

    @contextmanager
    def speaking(self, call: Call) -> Iterator[None]:
        """Turns the op's exceptions into Refused, or into Found where a kernel failed."""
        try:
            yield
        except (Found, NotRun, Refused, NoGradient):
            raise
        except Exception as error:
            said = str(error).strip()
            failed = FAILED.search(said)
            usual = isinstance(error, (RuntimeError, TypeError, ValueError, NotImplementedError))
            if failed or not (usual or isinstance(error, (AssertionError, IndexError))):
                lines = _LINE.findall(said)
                line = ":".join(lines[-1]) if lines else ""
                raise Found(said.partition("\n")[0][:300], call, line) from None
            raise Refused(f"{type(error).__name__}: {said.partition(chr(10))[0][:200]}") from None

    def results(self, call: Call) -> Results:
        """The op's results on copies of the tensors."""
        with self.speaking(call):
            return results(self.function, call.cloned())

    def with_gradients(self, call: Call, arriving: list[Tensor]) -> Results:
        with self.speaking(call):
            return with_gradients(self.function, call.cloned(), arriving)

    def judge(
        self, call: Call, gradients: bool = False, arriving: list[Tensor] | None = None
    ) -> list[Judgement]:
        """Judge each result of a call, and with `gradients` the gradients of its inputs."""
        arriving = arriving or (self.arriving(call, self.seed) if gradients else [])
        try:
            got = self.with_gradients(call, arriving) if gradients else self.results(call)
            return self.judgements(call, got, arriving)
        except NoGradient:  # the reference has none for this call, as for empty results
            if self._leads_to_gradient(call, arriving):
                raise
            return self.judge(call)

    def _leads_to_gradient(self, call: Call, arriving: list[Tensor]) -> bool:
        try:
            with_gradients(self.reference, call.cloned(), arriving)
        except NoGradient:
            return False
        return True

    def judgements(self, call: Call, got: Results, arriving: list[Tensor]) -> list[Judgement]:
        """Compare the results of a call with the reference's."""

        def reference(dtype: torch.dtype | None) -> Results:
            given = call if dtype is None else call.to(dtype)
            grads = arriving if dtype is None else [g.to(dtype) for g in arriving]
            given = given.mapped(lambda t: t.contiguous())
            if arriving:
                return with_gradients(self.reference, given, grads)
            return results(self.reference, given)

        own = self.example.mixed or not call.floats
        truth = self._truth(reference)
        in_float64 = any(call.leaves[i].dtype == torch.float64 for i in call.floats)
        bar, bar_truth = reference(None), truth
        if in_float64 and not own:
            low = call.to(torch.float32)
            bar = _of(self.reference, low, [g.float() for g in arriving])
            bar_truth = _of(
                self.reference, low.to(torch.float64), [g.float().double() for g in arriving]
            )
        if missing := truth.keys() ^ got.keys():
            message = f"it returns {', '.join(got)}; the reference returns {', '.join(truth)}"
            raise Found(message if missing else "", call)
        got = _without_unknown(got, truth, bar)
        named = [(name, truth[name], bar[name], bar_truth[name]) for name in truth]
        found = [judged(name, got[name], *others) for name, *others in named]
        if any(it.worse for it in found):
            found = self._excused(call, got, arriving, found, truth, bar)
        if any(it.worse for it in found) and arriving:
            kinks = self._kinks(call, arriving, truth)
            found = [
                judged(n, t.to(got[n].dtype).where(kinks[n], got[n]), t, *others)
                if it.worse and n in kinks and got[n].shape == t.shape
                else it
                for it, (n, t, *others) in zip(found, named, strict=True)
            ]
        return found

    def _excused(
        self,
        call: Call,
        got: Results,
        arriving: list[Tensor],
        found: list[Judgement],
        truth: Results,
        bar: Results,
    ) -> list[Judgement]:
        """Judgements that allow for rounding in the reference, and for ties."""
        floats = [call.leaves[i] for i in call.floats]
        changed, summed = self._moved(call, arriving) if floats else ({}, {})
        places = {f"gradient of {call.names[i]}": i for i in call.floats}
        excused, reordered = [], False
        for it in found:
            mine, other = got[it.name], changed.get(it.name)
            if it.worse and mine.is_floating_point() and other is not None:
                it = allowing(it, truth[it.name], other, mine.dtype)
            if it.worse and mine.is_floating_point() and it.name in summed:
                it = within_sums(it, truth[it.name], summed[it.name])
            if it.worse and arriving and (place := places.get(it.name)) is not None:
                it = from_rounded(it, call.leaves[place], truth, arriving)
            if it.worse and picks_equal(mine, bar[it.name], floats):
                it, reordered = replace(it, off=0.0), True
            elif it.worse and reordered and it.name.startswith("gradient"):
                it = replace(it, off=0.0)  # it picked another of several equal elements
            excused.append(it)
        return excused

    def _kinks(self, call: Call, arriving: list[Tensor], truth: Results) -> dict[str, Tensor]:
        """For each gradient, the mask of elements that jump when inputs move by 1e-9 of themselves.

        Several gradients are right there: max() may give it to any one of equal elements, or split
        it among them.
        """
        dice = torch.Generator().manual_seed(self.seed)
        names = [it for it in truth if it.startswith("gradient")]
        found = {it: torch.zeros_like(truth[it], dtype=torch.bool) for it in names}

        def nudged(t: Tensor) -> Tensor:
            noise = torch.randn(t.shape, dtype=torch.float64, generator=dice).to(t.device)
            wide = t.detach().double().contiguous()
            return torch.where(wide == 0, 1e-100 * noise, wide * (1 + 1e-9 * noise))

        for _ in range(16):
            try:
                given = call.mapped(nudged, call.floats)
                moved = _of(self.reference, given, [g.double() for g in arriving])
            except Exception:  # the reference refuses float64
                return {}
            for name in names:
                jump = (computable(moved[name]) - computable(truth[name])).abs()
                found[name] |= jump > 1e-4 * largest_of(truth[name])
        return found

    def _moved(self, call: Call, arriving: list[Tensor]) -> tuple[Results, Results]:
        """The truth with each operation of the reference off by an ULP of the call's type; and with
        each sum off by its error bound in float (double for double)."""
        eps = torch.finfo(call.leaves[call.floats[0]].dtype).eps
        in_sums = min(eps, torch.finfo(torch.float32).eps)
        given = call.mapped(lambda t: t.detach().double().contiguous(), call.floats)
        found: list[Results] = []
        for mode in (Noise(eps, self.seed), Sums(in_sums, self.seed)):
            try:
                with mode, sdpa_kernel(SDPBackend.MATH):
                    found.append(_of(self.reference, given, [g.double() for g in arriving]))
            except Exception:  # the reference refuses float64
                found.append({})
        return found[0], found[1]

    def _truth(self, reference: Callable[[torch.dtype | None], Results]) -> Results:
        try:
            return reference(torch.float64)
        except NoGradient:
            raise
        except Exception:
            said = "the reference refuses float64: its result in the op's own type is the truth"
            if said not in self.notes:
                self.notes.append(said)
            return reference(None)

    def must_be_right(
        self, call: Call, gradients: bool = False, arriving: list[Tensor] | None = None
    ) -> list[Judgement]:
        """Raises Found if a result is wrong, and Refused if the op refuses the call."""
        found = self.judge(call, gradients, arriving)
        for it in found:
            if it.wrong:
                raise Found(str(it), call)
        return found

    def until(self, calls: Iterator[Call]) -> Iterator[Call]:
        """Yields the calls until the trap's time is over."""
        end = time.monotonic() + self.seconds
        for call in calls:
            yield call
            if time.monotonic() > end:
                return


def _without_unknown(got: Results, truth: Results, bar: Results) -> Results:
    """NaN for each element of a gradient that is NaN in the reference beside finite results.

    Such a NaN comes of the reference's formula, as in x / (1 + exp(-x)) where exp overflows, or of
    the root of 0: it judges nothing.
    """
    gradients = {name for name in truth if name.startswith("gradient")}
    if not all(bool(computable(truth[n]).isfinite().all()) for n in truth.keys() - gradients):
        return got
    unknown = {n: computable(truth[n]).isnan() & computable(bar[n]).isnan() for n in gradients}
    return got | {
        n: got[n].masked_fill(mask, torch.nan)
        for n, mask in unknown.items()
        if got[n].shape == mask.shape and bool(mask.any())
    }


def _of(function: Callable, call: Call, arriving: list[Tensor]) -> Results:
    call = call.mapped(lambda t: t.contiguous())
    return with_gradients(function, call, arriving) if arriving else results(function, call)


@contextmanager
def poisoned(device: torch.device | str = "cpu") -> Iterator[None]:
    """Meanwhile new memory is filled with NaN, or the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        with nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = filled
