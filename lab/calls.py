"""Functions of one's own beside PyTorch's: error and time of each, in one table and one figure."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

import jitload
from lab import arguments, measure, plots
from lab import figure as drawing
from lab.case import in_float64
from lab.error import summarize
from lab.measure import CPU_CLOCK, SIMULATOR_CLOCK
from lab.progress import Progress

Results = Tensor | tuple[Tensor, ...]

PYTORCH = ("torch", "pytorch", "eager", "reference")  # names of calls, in any case
LONGEST_TITLE = 60
TITLES = {SIMULATOR_CLOCK: " on the simulator", CPU_CLOCK: " on the CPU itself"}


class Comparison(NamedTuple):
    """What `compare_calls` returns; a notebook shows both."""

    table: DataFrame
    figure: Figure

    def __repr__(self) -> str:
        return self.table.to_string()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.table)
        display(self.figure)


def compare_calls(
    calls: dict[str, Callable[..., Results | None]],
    *,
    inputs: Tensor | Iterable[object] | dict[str, object] = (),
    truth: Callable[..., Results] | str | Results | None = None,
    outputs: int | str | Iterable[int | str] = (),
    backward: bool = False,
    bytes: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Error and time of functions on the same inputs: a table, and a figure that shows both.

        lab.compare_calls({"mine": f, "torch": torch.sigmoid}, inputs=x)
        table, figure = lab.compare_calls({"mine": f, "torch": g}, inputs=[x, weight], truth=h)

    calls     functions by the names that they have in table and figure. Each is called with the
              inputs, and returns a tensor or a tuple of them.
    inputs    a tensor; or a list of what is passed in order; or a dict of what is passed by name.
              What a call writes to them is undone before the next call.
    truth     what the results are held against: a function, which is called with the inputs in
              float64; the name of one of the calls, for the same; or the true tensors, in float64.
              By default it is the call named "torch" ("pytorch", "eager", "reference").
    outputs   for calls that return None: which of the inputs they write their results to, by
              position or name, as in outputs=1.
    backward  the backward pass as well, alone: the gradients of all inputs that require one, from
              one random gradient of the results, which is the same for all.
    bytes     that a call has to move at least, forward. By default each tensor of the inputs is
              read once (but for `outputs`) and each result written once. Backward, the inputs and
              the arriving gradients are read, and the gradients written.
    seed      of the random gradient

    The table has a row for each direction and call:

    call, direction        its name; "forward" or "backward"
    max_ulp, mean_ulp      |result - truth| in units in the last place of the result's type at the
                           truth's value (`lab.ulp`); those of integers are 1
    max_error, mean_error  the same as it is
    time_us, spread_us     median of one call and its interquartile range, microseconds
    clock                  "GPU, cold L2"; without a GPU "CPU simulator" where the call launched
                           kernels and "CPU" where it did not, as PyTorch's own ops: such times say
                           nothing about each other, and the figure has an axis for each
    bytes, gb_per_s        and the rate: 1e9 bytes per second; NaN for what is not a GPU's time
    percent_of_copy        gb_per_s in percent of a copy measured in this run; NaN likewise

    Several results are taken together. `attrs` holds the conditions, as `compare`'s does.

    Raises TypeError or ValueError that names the argument. What a call raises passes through, with
    a note that says which call it was.
    """
    _check_calls(calls)
    given = _Inputs.of(inputs, outputs)
    if backward and not given.differentiable:
        raise ValueError(
            "backward: none of the inputs requires a gradient; wanted is one that does, as in"
            " x.requires_grad_() or torch.randn(1000, requires_grad=True)"
        )
    true = _truth_of(truth, calls)
    device = given.tensors[0].device if given.tensors else jitload.device()
    rows, directions = [], ("forward", "backward") if backward else ("forward",)
    on_gpu = device.type == "cuda"
    progress = Progress(len(directions) * len(calls))
    with progress, torch.cuda.device(device) if on_gpu else nullcontext():
        copy_gb_per_s = measure.copy_bandwidth() if on_gpu else None
        for direction in directions:
            truths = true.results(given, direction, seed)
            for name, call in calls.items():
                progress.step(f"{name}, {direction}")
                what = f"calls[{name!r}]"
                with given.put_back(), _noted(f"{what}, {direction}, was called"):
                    results, reads, step = _start(call, what, given, direction, seed)
                    _check_results(results, truths, what)
                    error = summarize(results, truths)
                    timing = measure.time_call(step, device)
                size = measure.bytes_moved(reads, results)
                if bytes is not None and direction == "forward":
                    size = bytes
                gb_per_s = timing.gb_per_s(size)
                rows.append(
                    {
                        "call": name,
                        "direction": direction,
                        "max_ulp": error.max_ulp,
                        "mean_ulp": error.mean_ulp,
                        "max_error": error.max,
                        "mean_error": error.mean,
                        "time_us": 1e6 * timing.median,
                        "spread_us": 1e6 * timing.spread,
                        "clock": timing.clock,
                        "bytes": size,
                        "gb_per_s": gb_per_s,
                        "percent_of_copy": 100 * gb_per_s / (copy_gb_per_s or math.nan),
                    }
                )
    table = DataFrame(rows)
    table.attrs = {
        **measure.environment(device, table["clock"]),
        "truth": true.name,
        "inputs": str(given),
        "copy_gb_per_s": copy_gb_per_s,
    }
    return Comparison(table, _figure(table))


# ---- what is given


@dataclass(frozen=True)
class _Inputs:
    """What every call gets: values in order or by name; and which of them hold the results."""

    values: dict[int | str, object]
    outputs: tuple[int | str, ...]

    @classmethod
    def of(cls, inputs: object, outputs: object) -> "_Inputs":
        if isinstance(inputs, Tensor):
            inputs = [inputs]
        if isinstance(inputs, str) or not isinstance(inputs, Iterable):
            raise TypeError(
                f"inputs: {inputs!r} is of type {type(inputs).__name__}; wanted is a tensor, a list"
                " of what the calls take, or a dict of it by name"
            )
        values = dict(inputs if isinstance(inputs, dict) else enumerate(inputs))
        if isinstance(outputs, int | str):
            outputs = [outputs]
        for key in outputs:
            if not isinstance(values.get(key), Tensor):
                there = ", ".join(repr(key) for key, v in values.items() if isinstance(v, Tensor))
                raise ValueError(
                    f"outputs: {key!r} is no tensor of the inputs; those are {there or 'none'}"
                )
        return cls(values, tuple(outputs))

    def __str__(self) -> str:
        return ", ".join(
            f"{arguments.dtype_name(x.dtype)} {' x '.join(map(str, x.shape)) or 'number'}"
            for x in self.tensors
        )

    @property
    def tensors(self) -> list[Tensor]:
        return [value for value in self.values.values() if isinstance(value, Tensor)]

    @property
    def differentiable(self) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.requires_grad]

    @property
    def read(self) -> list[Tensor]:
        """The tensors that a call has to read: all but those that it is given for its results."""
        return [
            value
            for key, value in self.values.items()
            if isinstance(value, Tensor) and key not in self.outputs
        ]

    def in_float64(self) -> "_Inputs":
        values = {
            key: in_float64(value).clone() if isinstance(value, Tensor) else value
            for key, value in self.values.items()
        }
        return _Inputs(values, self.outputs)

    def passed_to(self, call: Callable) -> object:
        ordered = [value for key, value in self.values.items() if isinstance(key, int)]
        named = {key: value for key, value in self.values.items() if isinstance(key, str)}
        return call(*ordered, **named)

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Undo at the end what was written to the tensors; until then they are where they were."""
        before = [tensor.detach().clone() for tensor in self.tensors]
        try:
            yield
        finally:
            for tensor, kept in zip(self.tensors, before, strict=True):
                if not torch.equal(tensor.detach(), kept):
                    tensor.detach().copy_(kept)


@dataclass(frozen=True)
class _Truth:
    """What the results are held against. name: of the call that it is, or "" if it is none."""

    name: str
    of: Callable | tuple[Tensor, ...]

    def results(self, given: _Inputs, direction: str, seed: int) -> tuple[Tensor, ...]:
        """The true results, or gradients, in float64; integers stay what they are."""
        if isinstance(self.of, tuple):
            if direction == "backward":
                raise ValueError(
                    "truth: tensors say nothing of gradients; with backward=True wanted is a"
                    " function, which is called with the inputs in float64"
                )
            results = self.of
        else:
            what = f"truth ({self.name!r})" if self.name else "truth"
            with _noted(
                f"{what} was called with the inputs in float64; give compare_calls another"
                " function for it, such as truth=lambda x: torch.sigmoid(x)"
            ):
                function, doubled = self.of, given.in_float64()
                if isinstance(function, torch.nn.Module):
                    function = copy.deepcopy(function).double()
                results, _, _ = _start(function, what, doubled, direction, seed)
        for result in results:
            if result.is_floating_point() and result.dtype != torch.float64:
                raise ValueError(
                    f"truth: it is {arguments.dtype_name(result.dtype)}; wanted is float64. A"
                    " function that is called with the inputs in float64 returns something else"
                    " where it converts them, or uses a tensor that is not among the inputs"
                )
        if not sum(result.numel() for result in results):
            raise ValueError("truth: it has no elements; wanted are inputs that are not empty")
        return tuple(result.detach() for result in results)


def _truth_of(truth: object, calls: dict[str, Callable]) -> _Truth:
    if truth is None:
        name = next((name for name in calls if _is_pytorchs(name)), None)
        if name is None:
            raise ValueError(
                f"truth: it is missing, and none of the calls ({', '.join(calls)}) is named"
                " 'torch'; wanted is a function of PyTorch's ops, which is called with the inputs"
                " in float64, or the name of one of the calls"
            )
        return _Truth(name, calls[name])
    if isinstance(truth, str):
        if truth not in calls:
            raise ValueError(f"truth: there is no call {truth!r}; there is {', '.join(calls)}")
        return _Truth(truth, calls[truth])
    if callable(truth):
        return _Truth("", truth)
    if not isinstance(truth, Tensor | tuple | list):
        raise TypeError(
            f"truth: {truth!r} is of type {type(truth).__name__}; wanted is a function, the name of"
            " one of the calls, or the true tensors in float64"
        )
    return _Truth("", _as_results(truth, "truth"))


def _is_pytorchs(name: str) -> bool:
    return name.casefold() in PYTORCH


def _check_calls(calls: object) -> None:
    wanted = 'wanted is a dict of functions by name, such as {"mine": f, "torch": torch.sigmoid}'
    if not isinstance(calls, dict):
        raise TypeError(f"calls: a {type(calls).__name__}; {wanted}")
    if not calls:
        raise ValueError(f"calls: the dict is empty; {wanted}")
    for name, call in calls.items():
        if not isinstance(name, str):
            raise TypeError(f"calls: the name {name!r} is of type {type(name).__name__}; {wanted}")
        if isinstance(call, jitload.Kernel):
            functions = ", ".join(
                f"{call.name}.{each}" for each in call.version.manifest["exports"]
            )
            raise TypeError(
                f"calls[{name!r}]: the kernel itself; wanted is a function that returns its"
                f" results and calls one of {functions}"
            )
        if not callable(call):
            raise TypeError(
                f"calls[{name!r}]: a {type(call).__name__}; wanted is the function itself, f and"
                " not f(x)"
            )


# ---- one call


def _start(
    call: Callable, what: str, given: _Inputs, direction: str, seed: int
) -> tuple[tuple[Tensor, ...], list[Tensor], Callable[[], object]]:
    """The results of a call or, backward, the gradients; what it reads; and what does it again."""
    returned = given.passed_to(call)
    if returned is None:
        if not given.outputs:
            raise TypeError(
                f"{what}: returned None; wanted is a tensor or a tuple of them. If it writes to one"
                " of the inputs say to which, as in outputs=1; else put it into a function that"
                " makes the result, passes it, and returns it"
            )
        returned = [given.values[key] for key in given.outputs]
    results = _as_results(returned, what)
    if direction == "forward":
        return tuple(y.detach() for y in results), given.read, lambda: given.passed_to(call)

    ends = [y for y in results if y.is_floating_point()]
    if not all(y.requires_grad for y in ends):
        raise ValueError(
            f"{what}: its result has no gradient, though an input requires one: a kernel has none"
            " until it gets a formula, by kernel.register_autograd or torch.autograd.Function"
        )
    arriving = _arriving(ends, seed)
    wanted = given.differentiable

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(ends, wanted, arriving, retain_graph=True)

    return step(), [*given.tensors, *arriving], step


def _arriving(ends: list[Tensor], seed: int) -> list[Tensor]:
    """A random gradient for each result, of numbers that every floating type holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    noise = (torch.randn(y.shape, generator=generator) for y in ends)
    return [n.half().bfloat16().to(y) for n, y in zip(noise, ends, strict=True)]


def _as_results(results: object, what: str) -> tuple[Tensor, ...]:
    """The tensor, or all tensors, of a result. Raises TypeError for anything else."""
    listed = tuple(results) if isinstance(results, tuple | list) else (results,)
    for each in listed:
        if not isinstance(each, Tensor):
            raise TypeError(
                f"{what}: returned a {type(each).__name__}; wanted is a tensor or a tuple of them"
            )
        if each.is_complex() or each.is_quantized or each.layout != torch.strided:
            raise TypeError(
                f"{what}: returned a tensor of {each.dtype}, {each.layout}; wanted are real numbers"
                " in a dense tensor"
            )
    return listed


def _check_results(results: tuple[Tensor, ...], truths: tuple[Tensor, ...], what: str) -> None:
    if len(results) != len(truths):
        raise ValueError(f"{what}: returned {len(results)} tensors; the truth has {len(truths)}")
    for index, (result, true) in enumerate(zip(results, truths, strict=True)):
        which = f"result {index}" if len(truths) > 1 else "its result"
        if result.shape != true.shape:
            raise ValueError(
                f"{what}: {which} has shape {tuple(result.shape)}; the truth has"
                f" {tuple(true.shape)}"
            )
        if result.device != true.device:
            raise ValueError(
                f"{what}: {which} is on {result.device}; the truth is on {true.device}"
            )


@contextmanager
def _noted(what: str) -> Iterator[None]:
    """Says what was being done, if that raises."""
    try:
        yield
    except Exception as failure:
        failure.add_note(f"raised when {what}")
        raise


# ---- the figure


def _figure(table: DataFrame) -> Figure:
    """Error of every call at the left, time at the right, with an axis for each clock."""
    facts = table.attrs
    names = list(dict.fromkeys(table["call"]))
    pytorchs = [name for name in names if name == facts["truth"] or _is_pytorchs(name)]
    kinds = {name: "torch" if name in pytorchs else "ours" for name in names}
    rows = table.assign(implementation=[f"{kinds[name]}:{name}" for name in table["call"]])
    facts = facts | {"versions": [name for name in names if name not in pytorchs]}
    groups = list(rows.groupby("direction", sort=False))
    clocks = plots.clocks_of(rows)
    panel = (3.8, 1.0 + 0.4 * len(names))
    with drawing.style():
        figure, axes = drawing.grid(len(groups), 1 + len(clocks), panel, sharey=True)
        for (left, *right), (direction, group) in zip(axes, groups, strict=True):
            before = f"{direction}: " if len(groups) > 1 else ""
            plots.version_errors(left, group, facts)
            left.set_title(f"{before}error")
            for times, clock in zip(right, clocks, strict=True):
                plots.version_times(times, group, facts, clock, percents=True)
                times.set_title(f"{before}time" + TITLES.get(clock, ""))
        axes[0][0].invert_yaxis()  # the first call on top
        title = f"Error and time of {', '.join(names)}"
        if len(title) > LONGEST_TITLE:
            title = f"Error and time of {len(names)} functions"
        truth = f"truth: {facts['truth']} in float64" if facts["truth"] else "truth in float64"
        caption = f"{plots.machine(facts)}\n{facts['inputs']}; {truth}; {facts['clock']}"
        return drawing.finish(figure, title, f"{caption}, {facts['date']}")
