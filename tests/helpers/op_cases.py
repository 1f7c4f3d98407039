"""What the tests of the ops share: the ops by name, their versions, and the judgement of error."""

import contextlib
import importlib
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial, reduce

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import jitload
import lab
import reference
from jitloader import building, commands
from toolchain.code import Recipe
from toolchain.errors import CompileError

DEVICE = jitload.device()
# Numbers of each kind that a judgement of error needs; of a loss each is a draw of its own.
RESULTS = 30 if DEVICE.type == "cuda" else 10
RESULTS_TO_FAIL = 300  # numbers and rows that an unfavourable one needs
SHOWN = 5  # elements in a failure's message
# Of products, between the versions without tensor cores and the best one.
BY_TENSOR_CORES = {
    "matmul": ("mma", "wgmma", "specialized", "cluster"),
    "attention": ("mma", "wgmma"),
}
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """One op in one of its versions, with one choice of its options."""

    op: reference.Op
    version: str
    options: dict

    def __str__(self) -> str:
        options = "".join(f"-{name}={value}" for name, value in self.options.items())
        return f"{self.op.name}-{self.version}{options}"

    @property
    def is_product(self) -> bool:
        """Whether its time is that of its arithmetic: it takes long without a GPU."""
        return bool(self.op.sizes)

    @property
    def is_between(self) -> bool:
        """Whether it is neither the naive version nor the best one."""
        versions = module_of(self.op.name).VERSIONS
        return self.version not in (versions[0], versions[-1])

    @property
    def widest(self) -> int:
        """Columns that it is tried with, at most: wide rows of products take minutes on a CPU."""
        return 4096 if self.is_product and DEVICE.type != "cuda" else 2**20

    @property
    def shapes(self) -> dict[str, str]:
        """Shapes in letters of the tensors that the op takes here: of those no option replaces."""
        return {name: shape for name, shape in self.op.shapes.items() if name not in self.options}

    @property
    def first(self) -> str:
        """The tensor that decides where and in which type the op runs."""
        return next(iter(self.shapes))

    @property
    def others(self) -> list[str]:
        return list(self.shapes)[1:]

    @property
    def differentiable(self) -> list[str]:
        return [name for name in self.shapes if name not in self.op.limits]

    def ours(self, **inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        function = getattr(module_of(self.op.name), self.op.name)
        return function(**inputs, **self.options, version=self.version)

    def theirs(self, **inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.op.function(**inputs, **self.options)

    def inputs(self, rows: int, cols: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
        return self.op.inputs(rows, cols, dtype, DEVICE, seed, without=self.options)

    def inputs_of_rank(
        self, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0
    ) -> dict[str, Tensor]:
        """Inputs of more or fewer dimensions: x [rows, cols] becomes x of `shape` [..., cols]."""
        *leading, cols = shape
        sizes = {"cols": cols} | self.op.sizes

        def shape_of(letters: str) -> list[int]:
            sized = {x: [reference.size_of(x, sizes)] for x in letters.split() if x != "rows"}
            return [size for x in letters.split() for size in sized.get(x, leading)]

        inputs = self.inputs(math.prod(leading), cols, dtype, seed)
        return {name: inputs[name].view(shape_of(letters)) for name, letters in self.shapes.items()}


def allocated_on_gpu() -> int:
    """Bytes of tensors on the GPU, if there is one: the least in three tenths of a second, for
    PyTorch's thread of the device lets go of a backward pass's last tensors just after the pass."""
    if DEVICE.type != "cuda":
        return 0
    least = torch.cuda.memory_allocated()
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        time.sleep(0.01)
        least = min(least, torch.cuda.memory_allocated())
    return least


def module_of(name: str):
    return importlib.import_module(f"kernels.{name}")


def is_repeated(name: str, version: str) -> bool:
    """Whether on this machine another version of the op runs what this one does.

    `stream` takes the rows that one block holds as `vector` does, and where there are no clusters,
    on the simulator, so does `cluster`: test_versions_hand_rows_down compares their bits. Versions
    of products by tensor cores differ for 16-bit floats alone; test_matmul.py and test_attention.py
    try each of them there, also under the checker. The few classes that linear_cross_entropy has
    here are one chunk; test_linear_cross_entropy.py has more.
    """
    if DEVICE.type == "cuda":
        return False
    if name in BY_TENSOR_CORES:
        return version in BY_TENSOR_CORES[name]
    if name == "linear_cross_entropy":
        return version == "whole"
    return version in ("vector", "cluster") and "stream" in module_of(name).VERSIONS


def build_in_turn(worker: str) -> None:
    """Build all ops, of the processes that share the tests each its own share, the largest first.

    Whoever is ready goes on with what others would build last. Importing the ops in one order all
    would wait for the one that builds.
    """

    def length(recipe: Recipe) -> int:
        code = next(building.readings(recipe))
        return sum(len(code.text(path)) for path in code.files)

    recipes = sorted(commands.recipes([], jitload.default_target()), key=length, reverse=True)
    number, of = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    own = recipes[number::of]
    for recipe in [*own, *(each for each in reversed(recipes) if each not in own)]:
        with contextlib.suppress(CompileError):  # which the import of that op raises
            building.ensure(recipe)


if "PYTEST_XDIST_WORKER" in os.environ:
    build_in_turn(os.environ["PYTEST_XDIST_WORKER"])

CASES = [
    Case(op, version, options)
    for op in reference.OPS.values()
    for version in module_of(op.name).VERSIONS
    if not is_repeated(op.name, version)
    for options in op.options
]
BEST = [case for case in CASES if case.version == module_of(case.op.name).VERSIONS[-1]]
QUICK = ("square", "relu", "reduce_sum")


def mostly_slow(cases: Iterable[Case | str]) -> list:
    """Parameters of a test that builds much for each op: `make test` takes it with a few ops, and
    `make test-all` with the others.
    """
    names = [(it, it if isinstance(it, str) else it.op.name) for it in cases]
    return [pytest.param(it, marks=[pytest.mark.slow] * (name not in QUICK)) for it, name in names]


def in_pairs(**axes: Iterable) -> pytest.MarkDecorator:
    """Parametrizes a test by a few combinations, in which every two values of two axes meet.

    On a GPU, where that is quick, by all combinations.
    """
    values = [list(axis) for axis in axes.values()]
    every = list(itertools.product(*(range(len(axis)) for axis in values)))

    def pairs_of(places: tuple[int, ...]) -> set:
        return set(itertools.combinations(enumerate(places), 2))

    chosen = every if DEVICE.type == "cuda" else []
    left = set() if chosen else set().union(*map(pairs_of, every))
    while left:
        chosen.append(max(every, key=lambda places: len(pairs_of(places) & left)))
        left -= pairs_of(chosen[-1])
    rows = [[axis[i] for axis, i in zip(values, places, strict=True)] for places in chosen]
    params = [pytest.param(*row, id="-".join(map(str, row))) for row in rows]
    return pytest.mark.parametrize(tuple(axes), params)


def skip_unless_free(needed: int) -> None:
    """Skips a test that takes so many bytes of GPU memory where fewer are free."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < needed:
        pytest.skip(f"{free >> 30} GiB of GPU memory are free; this test needs {needed >> 30}")


def by_name(result: Tensor | tuple[Tensor, ...]) -> dict[str, Tensor]:
    """An op's outputs: "y" or, where there are several, "y0", "y1" and so on."""
    if isinstance(result, Tensor):
        return {"y": result}
    return {f"y{number}": y for number, y in enumerate(result)}


def outcome(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: dict[str, Tensor],
    grad: Tensor | tuple[Tensor, ...] | None = None,
) -> dict[str, Tensor]:
    """The outputs by name, and the gradient of every input x as "dx"; integers have none.

    grad: what arrives at each output of floating type; default: ones.
    """
    leaves = {n: t.detach().requires_grad_(t.is_floating_point()) for n, t in inputs.items()}
    outputs = by_name(function(**leaves))
    ends = [y for y in outputs.values() if y.is_floating_point()]
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if grad is None:
        grad = tuple(torch.ones_like(y) for y in ends)
    grads = torch.autograd.grad(ends, tuple(wanted.values()), grad, materialize_grads=True)
    outputs = {name: y.detach() for name, y in outputs.items()}
    return outputs | {f"d{name}": d for name, d in zip(wanted, grads, strict=True)}


def cast_by_hand(
    kernel: jitload.Kernel, inputs: dict[str, object], dtype: torch.dtype
) -> dict[str, object]:
    """What autocast of a type makes of an op's tensors, by what is registered for its forward."""
    if "forward" not in kernel._formulas.autocast:
        return inputs
    policy, keep = kernel._formulas.autocast["forward"]
    cast = {n for n, t in inputs.items() if isinstance(t, Tensor) and t.is_floating_point()}
    cast -= set(keep)
    if policy == "promote":
        dtype = reduce(torch.promote_types, (inputs[name].dtype for name in cast))
    return {name: value.to(dtype) if name in cast else value for name, value in inputs.items()}


def is_elementwise(op: reference.Op) -> bool:
    """Whether each element of the result is made of the same element of one tensor alone."""
    if list(op.shapes.values()) != ["rows cols"]:
        return False
    (x,) = op.inputs(3, 4).values()
    y, alone = (op.function(each, **op.options[0]) for each in (x, x[:1, :1]))
    return y.shape == x.shape and torch.equal(alone, y[:1, :1])


def is_rounded_once(op: reference.Op) -> bool:
    """Whether PyTorch's results and gradients in float32 are those in float64, rounded."""
    inputs = op.inputs(30, 40)
    doubled = {name: value.double() for name, value in inputs.items()}
    got, true = (outcome(op.function, each) for each in (inputs, doubled))
    return all(torch.equal(got[name], true[name].float()) for name in got)


class Calls(TorchDispatchMode):
    """Notes every call of one namespace's ops: the op, and copies of its arguments."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self.noted: list[tuple[torch._ops.OpOverload, list]] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == self.namespace:
            self.noted.append((op, [copied(a) for a in args]))
        return op(*args, **(kwargs or {}))


def copied(argument: object) -> object:
    return argument.detach().clone() if isinstance(argument, Tensor) else argument


def has_second_derivative(case: Case) -> bool:
    """False where the op refuses to give one."""
    x = case.inputs(2, 3, torch.float64)
    leaves = [t.requires_grad_() for t in x.values() if t.is_floating_point()]
    ends = sum(y.square().sum() for y in by_name(case.ours(**x)).values())
    grads = torch.autograd.grad(ends, leaves, create_graph=True)
    try:
        torch.autograd.grad(sum(d.square().sum() for d in grads), leaves)
    except RuntimeError as refusal:
        if "has no second derivative" not in str(refusal):
            raise
        return False
    return True


def random_grad(result: Tensor | tuple[Tensor, ...], seed: int = 0) -> tuple[Tensor, ...]:
    """Normal noise for `outcome` to let arrive at what an op returned."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return tuple(
        torch.randn(y.shape, device=DEVICE, generator=generator).to(y.dtype)
        for y in by_name(result).values()
        if y.is_floating_point()
    )


def as_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy in another type; integers stay what they are."""
    return tensor.to(dtype if tensor.is_floating_point() else tensor.dtype).contiguous()


def converted(inputs: dict[str, object], dtype: torch.dtype) -> dict[str, object]:
    """Tensors in another type; what stands in a tensor's place stays."""
    return {
        name: as_type(value, dtype) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }


def on_cpu(inputs: dict[str, object]) -> dict[str, object]:
    """Where PyTorch's kernels for the GPU and for the CPU differ, we may do as either.

    relu(-0.0) is 0.0 on the GPU and -0.0 on the CPU. A row with an infinity makes rms_norm all NaN
    on the GPU where it is no multiple of a vector wide, and elsewhere only in the infinity's place.
    """
    return {
        name: value.cpu() if isinstance(value, Tensor) else value for name, value in inputs.items()
    }


def others_of(inputs: dict[str, object]) -> list[dict[str, object]]:
    """The same inputs for PyTorch's kernels elsewhere: where one has a NaN and another has none, we
    may do as either.

    In float64 too: gelu(inf) is inf there, and NaN in the vectors of the CPU's float32.
    """
    return [on_cpu(inputs), converted(inputs, torch.float64)]


def doubled(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.double() for tensor in tensors)


def outputs_in(results: dict[str, Tensor]) -> str:
    return ", ".join(name for name in results if name.startswith("y"))


def largest(values: Tensor) -> float:
    return values.abs().max().item() if values.numel() else 0.0


def half_ulp(number: float, dtype: torch.dtype) -> float:
    """Half the distance between neighbours at a number: what any rounding there may cost."""
    exponent = math.floor(math.log2(number)) if number > 0 else 0
    return 2.0**exponent * torch.finfo(dtype).eps / 2


def assert_same_but_for_order(got: Tensor, want: Tensor, name: str = "y") -> None:
    """The same but for the order of sums: off by two ULPs of the largest number, at most."""
    allowed = 2 * torch.finfo(want.dtype).eps * largest(want)
    torch.testing.assert_close(
        got, want, rtol=0, atol=allowed, msg=lambda message: f"{name}: {message}"
    )


def error(result: Tensor, truth: Tensor) -> float:
    """The largest difference; infinite where only one of the two is a NaN or an infinity."""
    assert result.shape == truth.shape
    result = result.double()
    same = (result == truth) | (result.isnan() & truth.isnan())
    return largest((result - truth).masked_fill(same, 0).nan_to_num(nan=math.inf))


def at(place: tuple[int, ...], tensor: Tensor, shape: torch.Size) -> Tensor | None:
    """What a tensor holds where a result of that shape has `place`; None if it lies otherwise."""
    own = shape[len(shape) - tensor.dim() :]
    return tensor[place[len(shape) - tensor.dim() :]] if tensor.shape == own else None


def worst(
    name: str, got: Tensor, want: Tensor, inputs: dict[str, object], wrong: Tensor | None = None
) -> str:
    """A few elements of a result, those farthest off first: got, wanted, and the input there.

    wrong: which elements count; by default all that differ.
    """
    same = (got == want) | (got.isnan() & want.isnan())
    wrong = ~same if wrong is None else wrong
    off = (got.double() - want.double()).abs().nan_to_num(nan=math.inf)
    order = off.masked_fill(~wrong, -1).flatten().argsort(descending=True, stable=True)
    lines = [f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, among them"]
    for index in order[: min(int(wrong.sum()), SHOWN)]:
        place = tuple(int(i) for i in torch.unravel_index(index, got.shape))
        there = {n: at(place, t, got.shape) for n, t in inputs.items() if isinstance(t, Tensor)}
        given = ", ".join(
            f"{n} is {value.item():.9g}" for n, value in there.items() if value is not None
        )
        found = (
            f"{name}{list(place) or ''} is {got[place].item():.9g}, wanted {want[place].item():.9g}"
        )
        lines.append(f"  {found}" + (f", where {given}" if given else ""))
    return "\n".join(lines)


def no_findings(function: Callable, *args: object, **kwargs: object) -> lab.Report:
    """The report of lab.check, which has no findings; however busy the machine is."""
    report = lab.check(function, *args, seconds=1800, **kwargs)
    assert report.findings.empty, str(report)
    return report


def assert_none(
    wrong: Tensor, name: str, got: Tensor, want: Tensor, inputs: dict[str, object]
) -> None:
    """No element is wrong; else the message shows a few."""
    __tracebackhide__ = True  # pytest would print every tensor here
    assert not wrong.any(), worst(name, got, want, inputs, wrong)


@dataclass
class Errors:
    """Largest errors of one result, draw by draw: ours, PyTorch's, and the truth they are of.

    shown: a few elements of the draw in which ours is the largest.
    """

    dtype: torch.dtype
    allowed: int  # times PyTorch's
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)
    shown: Callable[[], str] = str

    def in_half_ulps(self) -> tuple[float, float]:
        """The largest of all draws, PyTorch's at least 1.

        The ULP is that of the draw's largest truth, so that no draw with large numbers speaks for
        all; but of the median draw's where digits cancelled and left less, for there the error that
        the digits had before is divided by a number as small as you like.
        """
        middle = statistics.median(self.truth)
        units = [half_ulp(max(truth, middle), self.dtype) for truth in self.truth]
        ours = max(error / unit for error, unit in zip(self.ours, units, strict=True))
        theirs = max(error / unit for error, unit in zip(self.theirs, units, strict=True))
        return ours, max(theirs, 1.0)

    def too_large(self) -> bool:
        ours, theirs = self.in_half_ulps()
        return ours > self.allowed * theirs

    def __str__(self) -> str:
        ours, theirs = self.in_half_ulps()
        return (
            f"wrong by {ours:.3g} halves of an ULP; PyTorch by {theirs:.3g}, and {self.allowed} "
            f"times that is allowed\n{self.shown()}"
        )


def assert_as_good_as_pytorch(
    case: Case, draw: Callable[[int], dict[str, Tensor]], results: int = RESULTS
) -> None:
    """The largest error is at most k times PyTorch's own in the same type.

    draw: makes inputs from a seed. The largest of a few errors is luck, so there are draws until
    every result and gradient has given `results` numbers. Where a row has a sum, its errors hang
    together: so there are more, up to RESULTS_TO_FAIL rows, before a failure is believed.

    Truth is reference.py in float64. k is 2, and 3 for gradients that sum over all rows, as those
    of vectors over the columns. PyTorch's error counts as no less than half an ULP of the largest
    truth, for that much any rounding costs.

    For float64 there is no finer truth. PyTorch's error in float32, scaled by the ratio of their
    precisions, stands for its error there, and also for that of the truth: so k is one more.
    """
    __tracebackhide__ = True
    errors: dict[str, Errors] = {}
    numbers = rows = seed = 0

    def too_large() -> list[str]:
        return [name for name in errors if errors[name].too_large()]

    while numbers < results or (min(rows, numbers) < RESULTS_TO_FAIL and too_large()):
        inputs = draw(seed)
        dtype = inputs[case.first].dtype
        bar_dtype = torch.float32 if dtype == torch.float64 else dtype
        scale = torch.finfo(dtype).eps / torch.finfo(bar_dtype).eps
        grad = random_grad(case.theirs(**inputs), seed)
        got = outcome(case.ours, inputs, grad)
        truth = outcome(case.theirs, converted(inputs, torch.float64), doubled(grad))
        rough, rough_grad = converted(inputs, bar_dtype), tuple(g.to(bar_dtype) for g in grad)
        bar, bar_truth = outcome(case.theirs, rough, rough_grad), truth
        if bar_dtype != dtype:
            bar_truth = outcome(case.theirs, converted(rough, torch.float64), doubled(rough_grad))
        missing = f"outputs are {outputs_in(got)}; wanted are {outputs_in(truth)}"
        assert got.keys() == truth.keys(), missing
        for name in truth:
            assert got[name].dtype == dtype, name
            over_rows = "rows" not in case.shapes.get(name.removeprefix("d"), "rows")
            allowed = (3 if over_rows else 2) + (dtype == torch.float64)
            found = errors.setdefault(name, Errors(dtype, allowed))
            off = error(got[name], truth[name])
            if off > max(found.ours, default=-1):
                found.shown = partial(worst, name, got[name], truth[name], inputs)
            found.ours.append(off)
            found.theirs.append(scale * error(bar[name], bar_truth[name]))
            found.truth.append(largest(truth[name]))
        numbers += min(tensor.numel() for tensor in truth.values())
        first = inputs[case.first]
        rows += first.numel() // (first.shape[-1] if first.dim() else 1)
        seed += 1
    assert not too_large(), "; ".join(f"{name} is {errors[name]}" for name in too_large())


def assert_close_to_pytorch(
    case: Case, inputs: dict[str, Tensor], grad: tuple[Tensor, ...] | None = None
) -> None:
    """What `assert_as_good_as_pytorch` judges by, from one draw: for going through many shapes.

    One draw may find PyTorch lucky. So a result may also be off by k + 2 half ULP of the largest
    truth of its kind; an error of indexing is far beyond that.

    grad: what arrives at each output; by default noise.
    """
    __tracebackhide__ = True
    dtype = inputs[case.first].dtype
    if grad is None:
        grad = random_grad(case.theirs(**inputs))
    got, bar = outcome(case.ours, inputs, grad), outcome(case.theirs, inputs, grad)
    truth = outcome(case.theirs, converted(inputs, torch.float64), doubled(grad))
    for name in truth:
        allowed = 3 * error(bar[name], truth[name]) + 4 * half_ulp(largest(truth[name]), dtype)
        off = error(got[name], truth[name])
        assert got[name].dtype == dtype, name
        shape = tuple(inputs[case.first].shape)
        assert off <= allowed, (
            f"{name} of {shape} is off by {off:.3g}; {allowed:.3g} is allowed\n"
            f"{worst(name, got[name], truth[name], inputs)}"
        )
