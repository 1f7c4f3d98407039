"""The constants of each GPU: one readable file a GPU, here or in the user's folder."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Gpu:
    """A GPU's constants for the model; `python -m lab.calibrate` measures them.

    measured: by the microbenchmarks; otherwise from published figures, which `source` names.
    multiprocessors, clock_ghz: at the boost clock.
    threads, blocks, registers, shared_bytes: the most that a multiprocessor holds at once.
    l1_bytes: of a multiprocessor, with its shared memory. l2_bytes: of the GPU.
    dirty_bytes: dirty bytes in L2 after a flush by writes, which go to DRAM first.
    dirty_share: dirty bytes that leave L2 for each byte that is read.
    launch_us: an empty kernel between two events; launch_spread_us: by how much this differs among
        machines with this GPU, 0 on the machine that was measured.
    next_launch_us: each further launch of a call.
    host_wait_us: from the end of a launch that the host waits for to the host's next request.
    cold_us: to load a kernel's code and arguments with cold caches.
    block_ns: to launch a block, while the GPU has room for it.
    *_gb_per_s: of a large copy; of the fastest stream of DRAM and of L2.
    *_cycles: latency until a dependent instruction can issue.
    doubling_cycles: added latency for twice as many lines at once, beyond L1.
    store_cycles: of a multiprocessor, for each line that a warp's store writes to.
    partial_writes_per_ns: lines that L2 takes if a request writes only a part of each sector.
    scattered_reads_per_ns, scattered_writes_per_ns: pieces of 256 bytes that DRAM reads a part of,
        and writes a part of sectors in: each costs a row of DRAM more than it moves.
    barrier_cycles_per_warp: of a multiprocessor, for each warp that comes to a barrier.
    atomic_ns, atomic_float_ns: one turn of lanes that change one word of memory.
    atomic_sector_ns: one turn at one line of lanes that change different words of a sector.
    atomic_neighbours: of 8 lines in a row, how many such turns L2 takes at once.
    atomic_apart: further apart, n times as many lines take n ** atomic_apart turns at once.
    atomics_per_ns: such turns at most, of the whole L2.
    special_per_cycle, double_per_cycle: lanes of a multiprocessor's units.
    tensor_tflops, warpgroup_tflops: of mma.sync and of wgmma, 16-bit inputs.
    sharpness: p of the norm that combines the times of mechanisms that overlap.
    """

    name: str
    measured: bool
    source: str
    multiprocessors: int
    clock_ghz: float
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    l1_bytes: int
    l2_bytes: int
    dirty_bytes: float
    dirty_share: float
    launch_us: float
    launch_spread_us: float
    next_launch_us: float
    host_wait_us: float
    cold_us: float
    block_ns: float
    copy_gb_per_s: float
    dram_gb_per_s: float
    dram_cycles: float
    l2_gb_per_s: float
    l2_cycles: float
    doubling_cycles: float
    store_cycles: float
    partial_writes_per_ns: float
    scattered_reads_per_ns: float
    scattered_writes_per_ns: float
    l1_cycles: float
    shared_cycles: float
    arithmetic_cycles: float
    special_cycles: float
    double_cycles: float
    shuffle_cycles: float
    barrier_cycles: float
    barrier_cycles_per_warp: float
    atomic_ns: float
    atomic_float_ns: float
    atomic_sector_ns: float
    atomic_neighbours: float
    atomic_apart: float
    atomics_per_ns: float
    special_per_cycle: float
    double_per_cycle: float
    tensor_tflops: float
    warpgroup_tflops: float
    sharpness: float

    @property
    def title(self) -> str:
        """The GPU's name, and whether its constants were measured."""
        return self.name if self.measured else f"{self.name} (by published figures)"


def names() -> list[str]:
    """The GPUs that there are files for."""
    return sorted(path.stem.replace("_", " ") for path in FOLDER.glob("*.toml"))


def load(name: str | Path | None = None) -> Gpu:
    """A GPU by its name, as "H200" or "RTX 4090", or by the path of a file of lab.calibrate's.

    None is the GPU for which tables and figures predict: LAB_GPU in the environment, or the H200.

    Raises ValueError that names the GPUs there are, or what is wrong with a file.
    """
    given = "gpu" if name is not None else "LAB_GPU"
    name = os.environ.get("LAB_GPU", "H200") if name is None else name
    known = {it.lower().replace(" ", ""): it for it in names()}
    path = Path(name)
    if path.suffix != ".toml":
        wanted = known.get(str(name).lower().replace(" ", "").replace("_", ""))
        if not wanted:
            raise ValueError(
                f"{given}: {name!r}; there are {', '.join(names())}, or the path of a file that"
                " `python -m lab.calibrate` wrote"
            )
        path = FOLDER / f"{wanted.replace(' ', '_')}.toml"
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{given}: {path}: {error}") from None
    values.setdefault("name", path.stem.replace("_", " "))
    wanted_names = {it.name for it in fields(Gpu)}
    if wrong := wanted_names ^ set(values):
        raise ValueError(f"{given}: {path}: missing or unknown: {', '.join(sorted(wrong))}")
    return Gpu(**values)
