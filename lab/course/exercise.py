"""Exercises that are judged.

    from lab.course import judge
    judge("01_copy")                  # notebooks/exercises/01_copy.cu as it is now
    judge("01_bytes", 24_000_000)     # an answer; ... means that there is none yet

An exercise NN_NAME belongs to chapter NN. Its judge is the function NAME in
notebooks/exercises/chapter_NN.py; what the reader edits is notebooks/exercises/NN_NAME.cu, or .cpp
for a binding, or the argument in the chapter's cell; its solution is the file of the same name in
notebooks/solutions, or NN_NAME.py, which sets `answer`. Nothing else lists the exercises.

A judge is a generator that yields what must hold, in order: `Claim`, `Near` and, last, `Speed`.
The first that does not hold is the verdict, together with what `lab.check` reports for the
kernel's last call.

    @kernel(lines=14)
    def copy(attempt):
        x = torch.arange(1000.0)
        y = attempt.empty(1000)
        attempt(attempt.tensor(x), y, 1000)    # calls the file's extern "C" function `launch`
        yield Near(y, truth=x.double(), own=x, case="n = 1000")

    @binding("square", lines=30)
    def checks(attempt):
        y = attempt.forward(torch.ones(3))     # the file, compiled beside kernels/square.cu
        yield Claim(y.sum() == 3, "1 squared is 1")

    @answer
    def bytes(given):
        yield Claim(given == 24_000_000, f"{given} is not it: count the reads twice")
"""

import html
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

import jitload
from lab.checker.run import check
from lab.measure.clocks import disturbances
from lab.measure.error import summarize, ulp_error
from lab.measure.timing import copy_bandwidth, time_call
from lab.predictor.run import predict

NOTEBOOKS = jitload.KERNELS.parent / "notebooks"
EXERCISES, SOLUTIONS = NOTEBOOKS / "exercises", NOTEBOOKS / "solutions"
GUARD = 256  # elements before and after each kernel tensor; keeps 16-byte alignment


@dataclass(frozen=True)
class Claim:
    """A condition that must hold, and the message if it does not."""

    holds: bool
    why: str


@dataclass(frozen=True)
class Near:
    """A result that must be as exact as PyTorch's.

    got: the result. truth: float64, of the same shape. own: PyTorch's result in got's type. The
    largest error may be twice PyTorch's plus half an ULP. case: the input, in words.
    """

    got: Tensor
    truth: Tensor
    own: Tensor
    case: str


@dataclass(frozen=True)
class Speed:
    """A call that must reach `least` percent of a copy's rate, with a cold L2.

    Without a GPU the rate is predicted; the call passes if the best end of the 90% interval does.

    prepare: returns the call, on tensors of `Attempt.large`, and the bytes that it has to move.
    """

    prepare: Callable[[], tuple[Callable[[], object], int]]
    least: float


Judgement = Iterator[Claim | Near | Speed]


@dataclass(frozen=True)
class Exercise:
    """A decorated judge.

    lines: the line budget of a file; None for an answer. op: the op whose kernels the file binds;
    None for a kernel. bug: the file or the answer has a mistake for the reader to find. target:
    where the kernel runs, "cpu" for GPUs that nobody has; None for this machine's GPU.
    """

    judge: Callable[..., Judgement]
    lines: int | None
    op: str | None = None
    bug: bool = False
    target: str | None = None


def kernel(
    *, lines: int, bug: bool = False, target: str | None = None
) -> Callable[[Callable[..., Judgement]], Exercise]:
    """Decorates the judge of a .cu file of at most `lines` lines, without blanks and comments.

    bug: finding a mistake is the exercise, so a notebook folds the verdict's reason.
    target: "cpu" uses the simulator even if there is a GPU.
    """
    return lambda judge: Exercise(judge, lines, bug=bug, target=target)


def binding(
    op: str, *, lines: int, bug: bool = False
) -> Callable[[Callable[..., Judgement]], Exercise]:
    """Decorates the judge of a .cpp file that binds kernels/OP.cu; it gets the loaded kernel."""
    return lambda judge: Exercise(judge, lines, op, bug)


def answer(judge: Callable[..., Judgement]) -> Exercise:
    """Decorates the judge of an answer: a number, a tensor, a function."""
    return Exercise(judge, None)


def answer_with_bug(judge: Callable[..., Judgement]) -> Exercise:
    """Decorates the judge of an answer in which the reader is to find a mistake."""
    return Exercise(judge, None, bug=True)


@dataclass
class Verdict:
    """The result of `judge`; a notebook shows it in colour.

    reason: why it did not pass. facts: error, lines, percent of a copy (predicted without a GPU),
        up to the first failure.
    """

    name: str
    passed: bool
    reason: str = ""
    facts: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        state = "passed" if self.passed else "not yet"
        rest = ", ".join(self.facts) if self.passed else self.reason
        return f"{self.name}: {state}" + (f": {rest}" if rest else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        color = "#2e7d32" if self.passed else "#c62828"
        text = html.escape(str(self))
        if not self.passed and find(self.name).bug:
            said = "not yet (open this to read why; it may give the bug away)"
            text = (
                f"<details><summary>{self.name}: {said}</summary>"
                f"{html.escape(self.reason)}</details>"
            )
        return (
            f'<pre style="margin: 0; border-left: 3px solid {color}; padding-left: 0.6em;'
            f' white-space: pre-wrap">{text}</pre>'
        )


class Wrong(Exception):
    """The reader's kernel did something that no kernel may do."""


class Attempt:
    """The reader's kernel, called on tensors between guards.

    The guards hold NaN: reading them shows in the result, and writing them is detected after the
    call, because each tensor's NaN has its own bits. So a small index error harms neither the
    notebook nor the GPU.

    launch: the kernel's function itself, for `Speed`. device: where it runs; by default this
    machine's. last: the arguments of the last call.
    """

    def __init__(self, launch: Callable, device: torch.device | None = None) -> None:
        self.launch = launch
        self.device = device or jitload.device()
        self.last: tuple | None = None
        self._guarded: list[tuple[Tensor, slice, int]] = []

    def tensor(self, values: Tensor, shift: int = 0) -> Tensor:
        """These floats on the kernel's device, `shift` elements past an aligned address."""
        whole = torch.empty(values.numel() + 2 * GUARD, dtype=values.dtype, device=self.device)
        bits = _bits(torch.tensor(torch.nan, dtype=values.dtype)).item() + 1 + len(self._guarded)
        _bits(whole).fill_(bits)
        inside = slice(GUARD + shift, GUARD + shift + values.numel())
        whole[inside] = values.flatten().to(whole.device)
        self._guarded.append((_bits(whole), inside, bits))
        return whole[inside].view(values.shape)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, shift: int = 0) -> Tensor:
        """A tensor that holds NaN until it is written."""
        return self.tensor(torch.full(shape, torch.nan, dtype=dtype), shift)

    def large(self, *shape: int) -> Tensor:
        """Random numbers for `Speed`. Without a GPU a quarter of the rows: a prediction needs no
        more, and the tensor takes memory.
        """
        rows = shape[0] if self.device.type == "cuda" else shape[0] // 4
        return torch.randn(rows, *shape[1:], device=self.device)

    def __call__(self, *arguments: object) -> None:
        self.last = arguments
        self.launch(*arguments)
        for whole, inside, bits in self._guarded:
            guards = torch.cat([whole[: inside.start], whole[inside.stop :]])
            if not (guards == bits).all():
                raise Wrong("it wrote outside of a tensor")


def _bits(values: Tensor) -> Tensor:
    """The same memory as integers."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.view(kinds[values.element_size()])


def judge(name: str, answer: object = ...) -> Verdict:
    """Judge an exercise: the reader's file, or the answer. The verdict has reason, error and speed.

    Raises ValueError if there is no such exercise, TypeError if it takes a kernel and no answer.
    """
    exercise = find(name)
    if exercise.lines is not None:
        if answer is not ...:
            what = "binding" if exercise.op else "kernel"
            raise TypeError(f"{name}: wanted is no answer but a {what}, in {path_of(name)}")
        return judge_kernel(name, path_of(name))
    return judge_answer(name, answer)


def names() -> list[str]:
    """All exercises, chapter by chapter."""
    return [
        f"{path.stem.removeprefix('chapter_')}_{name}"
        for path in sorted(EXERCISES.glob("chapter_*.py"))
        for name, value in vars(_module(path)).items()
        if isinstance(value, Exercise)
    ]


def find(name: str) -> Exercise:
    """The exercise called NN_NAME. Raises ValueError if there is none."""
    chapter, _, function = name.partition("_")
    path = EXERCISES / f"chapter_{chapter}.py"
    exercise = getattr(_module(path), function, None) if path.is_file() else None
    if not isinstance(exercise, Exercise):
        there = [each for each in names() if each.startswith(f"{chapter}_")] or names()
        raise ValueError(f"name: there is no exercise {name!r}; there is {', '.join(there)}")
    return exercise


def path_of(name: str, folder: Path = EXERCISES) -> Path:
    """The file of the exercise `name` in `folder`: the reader's, or the solution."""
    return folder / f"{name}.{'cpp' if find(name).op else 'cu'}"


def judge_kernel(name: str, path: Path) -> Verdict:
    """Judge the .cu, or the .cpp that binds one, at `path` as the exercise `name`."""
    exercise = find(name)
    text = path.read_text()
    lines = sum(bool(line.strip()) for line in jitload.without_comments(text).splitlines())
    try:
        if exercise.op:
            bound = jitload.op_file(exercise.op, ".cu")
            attempt = jitload.load(bound, path, name=f"exercise_{name}")
        else:
            loaded = jitload.load(path, target=exercise.target)
            attempt = Attempt(loaded.launch, torch.device(loaded.target))
    except jitload.CompileError as error:
        return Verdict(name, False, str(error))
    verdict = _judged(name, exercise.judge(attempt))
    if not verdict and isinstance(attempt, Attempt):
        verdict.reason += _finding(attempt)
    verdict.facts.append(f"{lines} of {exercise.lines} lines")
    if verdict and lines > exercise.lines:
        verdict.passed = False
        verdict.reason = f"right, but {lines} lines long; wanted are {exercise.lines} at most"
    return verdict


def judge_answer(name: str, given: object) -> Verdict:
    """Judge an answer to the exercise `name`; ..., or a tuple that contains it, is no answer."""
    if given is ... or (isinstance(given, tuple) and any(each is ... for each in given)):
        return Verdict(name, False, "no answer yet: put it in place of ...")
    return _judged(name, find(name).judge(given))


def _judged(name: str, judgement: Judgement) -> Verdict:
    facts: dict[str, str] = {}
    worst = worst_own = 0.0
    try:
        for part in judgement:
            if isinstance(part, Near):
                reason, ours, own = _nearness(part)
                worst, worst_own = max(worst, ours), max(worst_own, own)
                facts["error"] = f"error {worst:.3g} ULP (PyTorch's {worst_own:.3g})"
            elif isinstance(part, Speed):
                reason, facts["speed"] = _speed(part)
            else:
                reason = "" if part.holds else part.why
            if reason:
                return Verdict(name, False, reason, list(facts.values()))
    except Wrong as error:
        return Verdict(name, False, str(error))
    except Exception as error:  # whatever the reader's code raises is the verdict
        return Verdict(name, False, f"{type(error).__name__}: {error}")
    return Verdict(name, True, facts=list(facts.values()))


def _finding(attempt: Attempt) -> str:
    """The checker's finding in the last call, as a line; empty where it cannot run."""
    if attempt.last is None:
        return ""
    try:
        report = check(attempt.launch, *attempt.last, traffic=False)
    except RuntimeError:  # the machine lacks a tool, or the call failed without a kernel
        return ""
    return report.first and f"\nlab.check: {report.first}"


def _nearness(near: Near) -> tuple[str, float, float]:
    """The failure, if any; then our largest error and PyTorch's, in ULP."""
    truth = near.truth.to(near.got.device)
    own = summarize([near.own.to(truth.device)], [truth]).max_ulp
    error = ulp_error(near.got, truth).flatten()
    largest = error.max().item()
    if largest <= 2 * own + 0.5:
        return "", largest, own
    at = error.argmax().item()
    place = [i.item() for i in torch.unravel_index(torch.tensor(at), truth.shape)]
    got, want = near.got.flatten()[at].item(), truth.flatten()[at].item()
    wrong = int((error > 2 * own + 0.5).sum())
    reason = f"{near.case}: result{place or ''} is {got:.9g}, wanted {want:.9g}"
    if got != got:
        reason += "; it was never written, or made of what lies outside of a tensor"
    elif largest < 1e6:
        reason += f"; {largest:.3g} ULP off, PyTorch at most {own:.3g}"
    return f"{reason} ({wrong} of {error.numel()} are wrong)", largest, own


def _speed(speed: Speed) -> tuple[str, str]:
    """The failure, if any, and the fact."""
    call, size = speed.prepare()
    if jitload.device().type != "cuda":
        return _predicted_speed(call, size, speed.least)
    timing = time_call(call)
    percent = 100 * timing.gb_per_s(size) / _copy_rate()
    fact = f"{percent:.0f}% of a copy"
    if percent >= speed.least:
        return "", fact
    why = disturbances([timing.held])
    return f"{fact}; wanted is {speed.least:g}%{why and f' ({why})'}", fact


def _predicted_speed(call: Callable[[], object], size: int, least: float) -> tuple[str, str]:
    """The same without a GPU."""
    prediction = predict(call, compile=None)  # nvcc would take longer than a reader waits
    low, middle, high = (
        1e-7 * size / seconds / prediction.gpu.copy_gb_per_s
        for seconds in (prediction.upper, prediction.seconds, prediction.lower)
    )
    where = f"predicted for {prediction.gpu.title}"
    if not prediction.certain:
        where += ": measure it"
    fact = f"{middle:.0f}% of a copy ({low:.0f} to {high:.0f}, {where})"
    return "" if high >= least else f"{fact}; wanted is {least:g}%", fact


@cache
def _copy_rate() -> float:
    return copy_bandwidth()


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"exercises_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
