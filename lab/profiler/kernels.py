"""One launch in a row: time, percent of the peaks, occupancy and what limits it."""

from __future__ import annotations

import re
from typing import Any

from lab.profiler.ncu import Launch

COLUMNS = [
    *("kernel", "grid", "block", "microseconds", "memory", "dram", "compute", "tensor"),
    *("occupancy", "achieved", "limited_by", "blocks", "waves", "registers", "shared", "bytes"),
]

# By ncu's names; the first that this GPU and this ncu have is used.
TIME = ("gpu__time_duration.sum", "gpu__time_duration.avg")
MEMORY = ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",)
DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
OTHER_TENSOR = re.compile(
    r"sm__(?:inst_executed_)?pipe_tensor\w*\.avg\.pct_of_peak_sustained_(?:active|elapsed)"
)
POSSIBLE = ("sm__maximum_warps_per_active_cycle_pct",)
ACHIEVED = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
WAVES = ("launch__waves_per_multiprocessor",)
REGISTERS = ("launch__registers_per_thread",)
SHARED = ("launch__shared_mem_per_block", "launch__shared_mem_per_block_allocated")
BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")  # no section of run.SECTIONS has them

# Metrics of the blocks per multiprocessor that each resource allows, and the resource.
LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "block size",
    "launch__occupancy_limit_barriers": "barriers",
    "launch__occupancy_limit_blocks": "blocks",
}
FULL = 99.5  # percent of a multiprocessor's warps; from here on nothing limits


def row_of(launch: Launch) -> dict[str, Any]:
    time = launch.number(*TIME)
    limits = {
        what: int(blocks)
        for name, what in LIMITS.items()
        if (blocks := launch.number(name)) is not None
    }
    blocks = min(limits.values(), default=None)
    possible = launch.number(*POSSIBLE)
    least = [what for what, count in limits.items() if count == blocks]
    if "blocks" in least:  # the most that any kernel may have: what allows as many is no limit
        least = ["blocks"]
    return {
        "kernel": launch.name,
        "grid": _extent(launch.metrics.get("Grid Size", "")),
        "block": _extent(launch.metrics.get("Block Size", "")),
        "microseconds": None if time is None else time / 1e3,
        "memory": launch.number(*MEMORY),
        "dram": launch.number(*DRAM),
        "compute": launch.number(*COMPUTE),
        "tensor": _tensor(launch),
        "occupancy": possible,
        "achieved": launch.number(*ACHIEVED),
        "limited_by": "" if possible is None or possible >= FULL else " and ".join(least),
        "blocks": blocks,
        "waves": launch.number(*WAVES),
        "registers": launch.number(*REGISTERS),
        "shared": launch.number(*SHARED),
        "bytes": _bytes(launch),
    }


def _tensor(launch: Launch) -> float | None:
    """Percent of all tensor cores; if that is not measured, of the busiest of their pipes."""
    if (value := launch.number(*TENSOR)) is not None:
        return value
    found = [launch.number(name) for name in launch.metrics if OTHER_TENSOR.fullmatch(name)]
    return max((value for value in found if value is not None), default=None)


def _bytes(launch: Launch) -> float | None:
    """The bytes read from and written to DRAM."""
    parts = [launch.number(name) for name in BYTES]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _extent(text: str) -> tuple[int, ...]:
    """The extents in "(512, 1, 1)", without trailing ones."""
    numbers = [int(found) for found in re.findall(r"\d+", text)]
    while len(numbers) > 1 and numbers[-1] == 1:
        numbers.pop()
    return tuple(numbers)
