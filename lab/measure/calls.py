"""Tables of calls: error and time of a user's functions beside PyTorch's, or time alone."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import jitload
from lab.measure import arguments, rows
from lab.measure.case import Results, in_float64
from lab.measure.clocks import disturbances, warn_if_disturbed
from lab.measure.error import Error, summarize
from lab.measure.progress import progress
from lab.measure.timing import bytes_moved, copy_bandwidth, environment, take_time
from lab.measure.verdict import Judged, of_all
from lab.measure.without_gpu import fetched, predicted, predicted_for

if TYPE_CHECKING:
    from pandas import DataFrame

PYTORCH = ("torch", "pytorch", "eager", "reference")  # names of calls, case-insensitive


def time_calls(calls: dict[str, Callable[[], object]], bytes: int) -> "DataFrame":
    """Time of each call, and its rate if `bytes` is what it has to move.

    Columns: version, time_us, spread_us, clock, bytes, gb_per_s, percent_of_copy, bytes_fetched,
    and predicted_us with its interval as in `compare`. Without a GPU the rates are NaN, and clock
    is "CPU simulator" where the call launched kernels, whose bytes_fetched `lab.check` counts then,
    and "CPU" where it did not, as PyTorch's own.
    `attrs` holds the conditions, as `compare`'s does.
    """
    from lab.measure.table import Table

    device = jitload.device()
    copy_gb_per_s = copy_bandwidth() if device.type == "cuda" else None
    measured, held = [], []
    for name, call in calls.items():
        timing = take_time(call, device)
        held.append(timing.held)
        measured.append(
            {
                "version": name,
                **rows.time(timing),
                **rows.rate(timing, bytes, copy_gb_per_s),
                "bytes_fetched": fetched(call, timing),
                **rows.prediction(predicted(call, timing)),
            }
        )
    warn_if_disturbed(held)
    table = Table(measured)
    table.attrs = {
        **environment(device, table["clock"]),
        "versions": list(calls),
        "copy_gb_per_s": copy_gb_per_s,
        "predicted_for": None if copy_gb_per_s else predicted_for(),
        "disturbances": disturbances(held),
    }
    return table


def measure_calls(
    calls: dict[str, Callable[..., Results | None]],
    *,
    inputs: Tensor | Iterable[object] | dict[str, object],
    truth: Callable[..., Results] | str | Results | None,
    outputs: int | str | Iterable[int | str],
    backward: bool,
    bytes: int | None,
    seed: int,
    copy_gb_per_s: float | None = None,
    counted: bool = True,
) -> "DataFrame":
    """The table of `lab.compare_calls`, which says what the arguments and the columns are.

    copy_gb_per_s: of a copy on this GPU; where it is None, that is measured.
    counted: whether bytes are counted and times predicted on the simulator.
    """
    from lab.measure.table import Table

    _check_calls(calls)
    given = _Inputs.of(inputs, outputs)
    if backward and not given.differentiable:
        raise ValueError(
            "backward: none of the inputs requires a gradient; wanted is one that does, as in"
            " x.requires_grad_() or torch.randn(1000, requires_grad=True)"
        )
    true = _truth_of(truth, calls)
    device = given.tensors[0].device if given.tensors else jitload.device()
    measured, held, judged = [], [], []
    directions = ("forward", "backward") if backward else ("forward",)
    on_gpu = device.type == "cuda"
    here = torch.cuda.device(device) if on_gpu else nullcontext()
    with progress(len(directions) * len(calls)) as say, here:
        if on_gpu and copy_gb_per_s is None:
            copy_gb_per_s = copy_bandwidth()
        for direction in directions:
            truths = true.results(given, direction, seed)
            errors: dict[str, Error] = {}
            eps: dict[str, float] = {}
            for name, call in calls.items():
                say(f"{name}, {direction}")
                what = f"calls[{name!r}]"
                with given.put_back(), _noted(f"{what}, {direction}, was called"):
                    results, reads, step = _start(call, what, given, direction, seed)
                    _check_results(results, truths, what)
                    error = errors[name] = summarize(results, truths)
                    types_of = [y.dtype for y in results]
                    floats = (it for it in types_of if it.is_floating_point)
                    eps[name] = max((torch.finfo(it).eps for it in floats), default=0)
                    timing = take_time(step, device)
                    bytes_fetched = fetched(step, timing) if counted else math.nan
                    expected = predicted(step, timing) if counted else None
                held.append(timing.held)
                size = bytes_moved(reads, results)
                if bytes is not None and direction == "forward":
                    size = bytes
                measured.append(
                    {
                        "call": name,
                        "direction": direction,
                        **rows.in_ulp(error),
                        **rows.absolute(error),
                        **rows.time(timing),
                        **rows.rate(timing, size, copy_gb_per_s),
                        "bytes_fetched": bytes_fetched,
                        **rows.prediction(expected),
                    }
                )
            torchs = [name for name in errors if name == true.name or is_pytorchs(name)]
            beside = min((errors[name] for name in torchs), key=lambda it: it.max, default=None)
            beside = beside or true.own_error(given, direction, seed, truths, types_of)
            finite = (it.double().nan_to_num(0, 0, 0).abs() for it in truths if it.numel())
            most = max((it.max().item() for it in finite), default=0)
            judged += [
                Judged(f"{name}, {direction}" * backward or name, error, beside, eps[name], most)
                for name, error in errors.items()
                if name not in torchs
            ]
    warn_if_disturbed(held, stacklevel=3)
    table = Table(measured)
    table.attrs = {
        **environment(device, table["clock"]),
        "truth": true.name,
        "inputs": str(given),
        "copy_gb_per_s": copy_gb_per_s,
        "predicted_for": None if copy_gb_per_s else predicted_for(),
        "disturbances": disturbances(held),
        "verdict": of_all(judged),
    }
    return table


# ---- what is given


@dataclass(frozen=True)
class _Inputs:
    """The inputs of every call: values in order or by name; and which of them hold the results."""

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
        return arguments.described(self.tensors)

    @property
    def tensors(self) -> list[Tensor]:
        return [value for value in self.values.values() if isinstance(value, Tensor)]

    @property
    def differentiable(self) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.requires_grad]

    @property
    def read(self) -> list[Tensor]:
        """The tensors that a call has to read: all but those given for its results."""
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

    def passed_to(self, call: Callable) -> partial:
        """The call with the inputs, which `lab.check` finds in it."""
        ordered = [value for key, value in self.values.items() if isinstance(key, int)]
        named = {key: value for key, value in self.values.items() if isinstance(key, str)}
        return partial(call, *ordered, **named)

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Undo at the end what was written to the tensors; their memory stays the same."""
        before = [tensor.detach().clone() for tensor in self.tensors]
        try:
            yield
        finally:
            for tensor, kept in zip(self.tensors, before, strict=True):
                if not torch.equal(tensor.detach(), kept):
                    tensor.detach().copy_(kept)


@dataclass(frozen=True)
class _Truth:
    """The truth to compare results with. name: the call that gives it, or "" if none does."""

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

    def own_error(
        self,
        given: _Inputs,
        direction: str,
        seed: int,
        truths: tuple[Tensor, ...],
        types: list[torch.dtype],
    ) -> Error | None:
        """The truth function's error when called with the inputs as they are (PyTorch's own). None
        if its results are not of the calls' types, or it takes only float64 inputs."""
        if isinstance(self.of, tuple):
            return None
        try:
            with given.put_back():
                results, _, _ = _start(self.of, "truth", given, direction, seed)
        except Exception:
            return None
        if [y.dtype for y in results] != types:
            return None
        return summarize(results, truths)


def _truth_of(truth: object, calls: dict[str, Callable]) -> _Truth:
    if truth is None:
        name = next((name for name in calls if is_pytorchs(name)), None)
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


def is_pytorchs(name: str) -> bool:
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
            functions = ", ".join(f"{call.name}.{each}" for each in call.build.exports)
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
    """A call's results or, backward, gradients; the tensors it reads; and a repeatable call."""
    forward = given.passed_to(call)
    returned = forward()
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
        return tuple(y.detach() for y in results), given.read, forward

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
    """Notes on an exception what was being done."""
    try:
        yield
    except Exception as failure:
        failure.add_note(f"raised when {what}")
        raise
