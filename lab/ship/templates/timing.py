"""Time on a GPU: medians with a cold L2 cache, and the bytes that an operator has to move."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from PACKAGE import cases
from PACKAGE.reference import OPS

FLUSHED = 256 << 20  # bytes: more than any GPU's L2 cache
COPIED = 1 << 30


def microseconds(function: Callable[[], object], times: int = 30) -> float:
    """The median time of a call on the GPU. Before each one the L2 cache is overwritten."""
    flushed = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    for _ in range(3):
        function()
    pairs = []
    for _ in range(times):
        flushed.zero_()
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        function()
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return 1e3 * statistics.median(start.elapsed_time(end) for start, end in pairs)


@functools.cache
def copy_rate() -> float:
    """Bytes a microsecond that a copy reads and writes."""
    x = torch.empty(COPIED, dtype=torch.int8, device="cuda")
    y = torch.empty_like(x)
    return 2 * COPIED / microseconds(lambda: y.copy_(x))


def can_repeat(line: dict) -> bool:
    """Whether a line of the bench can be measured from what it says."""
    op = OPS.get(line["op"])
    if op is None or op.sizes or line["options"] not in (None, ""):
        return False
    free, _ = torch.cuda.mem_get_info()
    numbers = line["rows"] * line["cols"]
    return free > 8 * numbers * getattr(torch, line["dtype"]).itemsize


def percent_of_copy(line: dict) -> float:
    """How fast a line of the bench is here: its bytes a second, in percent of a copy's."""
    case = cases.Case(
        line["op"], {}, line["direction"], line["dtype"], line["rows"], line["cols"], "cuda"
    )
    step = step_of(case, cases.function_of(case.op))
    return 100 * line["bytes"] / microseconds(step) / copy_rate()


def step_of(case: cases.Case, function: Callable) -> Callable[[], object]:
    """What is timed: the call, or the backward pass alone."""
    inputs = {name: it.detach() for name, it in case.inputs().items()}
    if case.direction == "forward":
        return lambda: function(**inputs, **case.options)
    leaves = {name: it.requires_grad_(it.is_floating_point()) for name, it in inputs.items()}
    outputs = function(**leaves, **case.options)
    ends = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    arriving = [torch.randn_like(y) for y in ends]
    wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
    return lambda: torch.autograd.grad(ends, wanted, arriving, retain_graph=True)
