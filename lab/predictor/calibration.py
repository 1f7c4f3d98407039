"""Computes a GPU's constants from the microbenchmarks' times, each by one line of arithmetic."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.predictor.measuring import LARGE, ROUNDS, Run

SECTOR, SECTORS = 32, 4  # bytes, and of a line
WARP = 32
# From the CUDA programming guide's tables, by compute capability: special-function and double-
# precision lanes per cycle; bytes of L1 and shared memory together, and the most shared memory.
TABLES = {
    (7, 5): (16, 2, 96 << 10, 64 << 10),
    (8, 0): (16, 32, 192 << 10, 164 << 10),
    (8, 6): (16, 2, 128 << 10, 100 << 10),
    (8, 9): (16, 2, 128 << 10, 100 << 10),
    (9, 0): (16, 64, 256 << 10, 228 << 10),
    (10, 0): (16, 64, 256 << 10, 228 << 10),
    (12, 0): (16, 2, 128 << 10, 100 << 10),
}
WGMMA_OVER_MMA = 1.24  # on Hopper, matrix products of H200.toml: 790 TFLOPS against 640


def constants(runs: Iterable[Run], properties: dict[str, Any], clock_ghz: float) -> dict[str, Any]:
    """The fields of `lab.gpus.gpu.Gpu` except its name.

    properties: those of torch.cuda.get_device_properties, and capability.
    """
    runs = list(runs)
    known = {(it.name, tuple(sorted(it.parameters.items()))): it.seconds for it in runs}

    def time(name: str, **parameters: int) -> float:
        return known[name, tuple(sorted(parameters.items()))]

    def slope(name: str, what: str, few: int, many: int, **others: int) -> float:
        """Seconds that one more takes: the slope between a few and many."""
        more = time(name, **{what: many}, **others) - time(name, **{what: few}, **others)
        return more / (many - few)

    ghz = clock_ghz * 1e9
    multiprocessors = properties["multi_processor_count"]
    launch = time("nothing", blocks=1, threads=32)
    streams = [it for it in runs if it.name in ("copy", "fill", "in flight", "cp.async")]
    moved = {"copy": 2}
    rate = max(
        moved.get(it.name, 1) * it.parameters["bytes"] / (it.seconds - launch) for it in streams
    )
    copies = [it for it in streams if it.name == "copy"]
    copy = max(2 * it.parameters["bytes"] / it.seconds for it in copies)
    words = {
        it.parameters["loads"]: it.seconds
        for it in runs
        if it.name == "in flight" and it.parameters["width"] == 4 and it.parameters["warps"] == 1
    }

    def displaced(size: int) -> float:
        """Seconds by which reads exceed writes, which leave as many dirty bytes as they evict."""
        reads = time("read and write", bytes=size, reads=4, writes=0)
        return reads - time("read and write", bytes=size, reads=0, writes=4)

    few_read, some_read, most_read = 4 << 20, 32 << 20, 256 << 20
    dirty = rate * (displaced(most_read) - displaced(few_read))

    def scattered(name: str, moved: int, displaced: float) -> float:
        """Pieces of 256 bytes per second of which one sector is requested (lanes 64 words apart).

        Their cost and that of the bytes `moved` add in quadrature to the time.
        """
        requests = LARGE // 4 // 64 // WARP
        seconds = time(name, stride=64, requests=requests) - launch
        pieces, streamed = WARP * requests, (WARP * requests * moved + displaced) / rate
        return pieces / math.sqrt(seconds**2 - streamed**2)

    special, double, l1, shared = TABLES[properties["capability"]]
    reads = [it for it in runs if it.name == "l2"]
    most, few = (
        max(reads, key=lambda it: it.parameters["bytes"]),
        min(reads, key=lambda it: it.parameters["bytes"]),
    )
    shuffles = slope("shuffles", "rounds", 256, 1024, warps=4)
    one = slope("barriers", "rounds", 1024, 4096, threads=32, blocks=1) * ghz
    full = slope("barriers", "rounds", 1024, 4096, threads=1024, blocks=2) * ghz / 64
    products = 64 * multiprocessors * 4 * 4096  # operations of a round of mma
    tensor = products / slope("mma", "rounds", 256, 1024, warps=64)
    of_round = multiprocessors * 8 * 8  # warps
    per_warp_atomics = of_round * WARP

    def turns(stride: int, n: int) -> float:
        """Seconds of a warp's atomic."""
        return slope("atomics", "rounds", 8, 64, stride=stride, n=n) / of_round

    # All warps at one word, and in 8 rounds at one after another of 8 words 4 KB apart.
    one_line, one_word = turns(1, 32), turns(0, 1)
    moving = (time("atomics", rounds=8, stride=0, n=1 << 20) - launch) / 8 / of_round
    lines = 2 << 20
    return {
        "measured": True,
        "source": f"python -m lab.calibrate, {datetime.date.today().isoformat()}",
        "multiprocessors": multiprocessors,
        "clock_ghz": round(clock_ghz, 3),
        "threads": properties["max_threads_per_multi_processor"],
        "blocks": 32 if properties["capability"][0] != 7 else 16,
        "registers": 65536,
        "shared_bytes": shared,
        "l1_bytes": l1,
        "l2_bytes": properties["L2_cache_size"],
        "dirty_bytes": int(dirty),
        "dirty_share": rate * (displaced(some_read) - displaced(few_read)) / (some_read - few_read),
        "launch_us": 1e6 * launch,
        "launch_spread_us": 0.0,
        "next_launch_us": 1e6 * (time("launches", count=4) - launch) / 3,
        "host_wait_us": 1e6 * (time("host waits") - time("launches", count=2)),
        "cold_us": 1e6 * (time("code", instructions=64, blocks=1, calls=1) - launch - 64 / ghz),
        "block_ns": 1e9 * slope("nothing", "blocks", 1, 1 << 18, threads=32),
        "copy_gb_per_s": 1e-9 * copy,
        "dram_gb_per_s": 1e-9 * rate,
        "dram_cycles": ghz * slope("chase", "steps", 2048, 8192, size=512 << 20),
        "l2_gb_per_s": 1e-9
        * (most.parameters["bytes"] - few.parameters["bytes"])
        / (most.seconds - few.seconds),
        "l2_cycles": ghz * slope("chase", "steps", (1 << 15) + 2048, (1 << 15) + 8192, size=lines),
        "doubling_cycles": ghz * (words[4] - words[1]) / ROUNDS / 2,
        "store_cycles": ghz * slope("write rows", "cols", 1024, 4096, blocks=2, threads=32) / 32,
        "partial_writes_per_ns": 1e-9
        * multiprocessors
        * 256
        / slope("write rows", "cols", 1024, 4096, blocks=multiprocessors, threads=256),
        "scattered_reads_per_ns": 1e-9 * scattered("strided read", 2 * SECTOR, dirty),
        "scattered_writes_per_ns": 1e-9 * scattered("strided write", 2 * SECTOR, 0.0),
        "l1_cycles": ghz * slope("chase", "steps", 2048, 8192, size=8 << 10),
        "shared_cycles": ghz * slope("chase shared", "steps", 2048, 8192),
        "arithmetic_cycles": ghz * slope("fma32 latency", "rounds", 256, 1024) / 4,
        "special_cycles": ghz * slope("special latency", "rounds", 256, 1024) / 4,
        "double_cycles": ghz * slope("fma64 latency", "rounds", 256, 1024) / 4,
        "shuffle_cycles": ghz * shuffles,
        "barrier_cycles": one,
        "barrier_cycles_per_warp": full,
        "atomic_ns": 1e9 * slope("atomics", "rounds", 8, 64, stride=0, n=1) / per_warp_atomics,
        "atomic_float_ns": 1e9
        * slope("atomics_float", "rounds", 8, 64, stride=0, n=1)
        / per_warp_atomics,
        "atomic_sector_ns": 1e9 * one_line / SECTORS,
        "atomic_neighbours": one_line / turns(1, 256),
        "atomic_apart": math.log(one_word / moving) / math.log(8),
        "atomics_per_ns": 1e-9 * SECTORS / turns(1, 1 << 20),
        "special_per_cycle": special,
        "double_per_cycle": double,
        "tensor_tflops": 1e-12 * tensor,
        "warpgroup_tflops": 1e-12
        * tensor
        * (WGMMA_OVER_MMA if properties["capability"] == (9, 0) else 1.0),
        "sharpness": 2.4,
    }


def write(values: dict[str, Any], path: Path) -> None:
    """Writes a file that `lab.gpus.gpu.load` reads."""
    lines = []
    for name, value in values.items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, str):
            value = f'"{value}"'
        elif isinstance(value, float):
            value = f"{value:.4g}"
        lines.append(f"{name} = {value}\n")
    path.write_text("".join(lines), "utf-8")
