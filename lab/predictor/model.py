"""Models the time of a launch from its counts: one term for each mechanism of a GPU.

    time = launch + first access + (sum of the terms ^ p) ^ (1/p)

Each term is the time that one mechanism alone would take. Mechanisms overlap, and the slowest hides
the others, but not wholly (p, `sharpness`). One term is latency: the time of one warp alone, with
the waits in its machine code, times the waves of blocks. By Little's law, the bytes in flight are
what the resident warps have requested at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lab.gpus.gpu import Gpu
from lab.predictor import machine_code as mc
from lab.predictor.counts import SECTOR, WARP, Access, Launch

QUARTERS = 4  # of a multiprocessor, each with a scheduler
LINE, PIECE = 128, 256  # of a cache, and of a row of DRAM: bytes
SCATTERED_FROM = 0.75  # pieces of DRAM for each sector that is asked for
NEIGHBOURS = 8  # lines of which `atomic_neighbours` tells how many take turns at once
RESERVED = 1024  # bytes of shared memory that the system takes of each block

# The names of the mechanisms, as reports have them.
DRAM, L2, L1, SHARED = "DRAM", "L2", "L1", "shared memory"
SCATTERED = "scattered accesses to DRAM"
LATENCY, ISSUE, BARRIER = "latency", "instruction issue", "barriers"
ATOMICS, ATOMICS_APART = "atomics", "atomics at many lines"
BLOCKS, CONFLICTS = "launch of blocks", "bank conflicts"
LOCAL, HOST = "local memory", "the host"
LAUNCH, FIRST, TAIL = "launch", "first access", "tail of the last wave"
GLOBAL, COPIES = "global memory", "asynchronous copies"

# Without machine code, as it is on the median over kernels of public examples that have some:
GUESSED_REGISTERS = 24
GUESSED_PER_REQUEST = 4.0  # instructions for each request to memory
GUESSED_CYCLES = 1.6  # of a warp alone for an instruction, the wait for those before it included
# Requests that a warp waits for at once:
GUESSED_TOGETHER = {SHARED: 6.0, GLOBAL: 2.0, COPIES: 16.0}

GLOBAL_LOADS = ("LDG", "LD", "ATOMG", "ATOM")
PIPES = (mc.ALU, mc.FMA, mc.XU, mc.DOUBLE, mc.TENSOR)


@dataclass
class Terms:
    """Seconds of each mechanism alone, their combined time, and the quantities behind them."""

    alone: dict[str, float]
    total: float
    resident: int  # blocks of a multiprocessor at once
    limited_by: str
    waves: float
    in_flight: float  # bytes, of the whole GPU
    dram_bytes: float
    l2_bytes: float
    instructions: float
    waits: dict[str, float]  # of a warp's time alone: cycles by what it waits for

    @property
    def main(self) -> str:
        return max(self.alone, key=lambda name: self.alone[name])


def of_call(launches: list[Launch], gpu: Gpu) -> list[Terms]:
    """The terms of a call's launches, each of which finds in L2 what the earlier ones left."""
    left = Left()
    return [terms(launch, gpu, left) for launch in launches]


@dataclass
class Left:
    """What the launches of a call have left in L2, in bytes.

    moved: the room in L2 of all that they touched. touched: for each region, the bytes of the
    latest launch that used it, and `moved` before that. displaced: dirty bytes from before.
    """

    moved: float = 0.0
    touched: dict[int, tuple[float, float]] = field(default_factory=dict)
    displaced: float = 0.0

    def resident(self, it: Access, gpu: Gpu) -> float:
        """The part of a launch's first-read sectors in a region that L2 has."""
        if it.region not in self.touched:
            return 0.0
        held, since = self.touched[it.region]
        kept = min(1.0, max(0.0, math.log2(gpu.l2_bytes / max(self.moved - since, 1.0))))
        # A sample's blocks need not read what the previous launch's sampled blocks did.
        seen = it.earlier / max(it.first + it.earlier, 1.0)
        return kept * max(seen, min(1.0, held / it.region_bytes))

    def add(self, launch: Launch) -> None:
        """Adds what a launch touched; what it read is in both halves of L2."""
        before = self.moved
        read, written = footprint(launch)
        for region in read.keys() | written.keys():
            held = max(read.get(region, 0.0), written.get(region, 0.0))
            self.touched[region] = held, before
            self.moved += max(2 * read.get(region, 0.0), written.get(region, 0.0))


def footprint(launch: Launch) -> tuple[dict[int, float], dict[int, float]]:
    """The bytes of each region that a launch reads, and the bytes that it writes."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    for it in launch.accesses:
        if not it.is_shared:
            for found, sectors in ((read, it.first + it.earlier), (written, it.written)):
                held = min(it.region_bytes, SECTOR * sectors)
                if held:
                    found[it.region] = max(found.get(it.region, 0.0), held)
    return read, written


def terms(launch: Launch, gpu: Gpu, left: Left | None = None) -> Terms:
    """The terms of one launch. left: what earlier launches have left in L2."""
    left = left or Left()
    per_block = math.ceil(launch.threads / WARP)
    resident, limited_by = _resident(launch, gpu, per_block)
    busy = min(launch.blocks, gpu.multiprocessors)
    waves = launch.blocks / (resident * gpu.multiprocessors)
    # Blocks that a multiprocessor has to itself at once, where they do not fill it.
    together = min(resident, math.ceil(launch.blocks / gpu.multiprocessors))
    cycle = 1e-9 / gpu.clock_ghz

    caches = _Caches(launch, gpu, together * per_block, busy, left)
    left.add(launch)
    alone: dict[str, float] = {}
    alone[DRAM], alone[SCATTERED] = caches.dram_seconds()
    alone[L2] = max(
        SECTOR * caches.l2_sectors / (1e9 * gpu.l2_gb_per_s),
        1e-9 * caches.partial / gpu.partial_writes_per_ns,
    )
    alone[ATOMICS], alone[ATOMICS_APART] = _atomics(launch, gpu)

    # Work that multiprocessors share; the busiest one has a whole number of blocks.
    share = math.ceil(launch.blocks / gpu.multiprocessors) / launch.blocks
    spread = share * cycle
    alone[L1] = caches.l1_cycles * spread
    smooth = sum(it.smooth for it in launch.accesses if it.is_shared)
    alone[SHARED] = (smooth + launch.shuffles) * spread
    alone[CONFLICTS] = sum(it.passes - it.smooth for it in launch.accesses if it.is_shared) * spread
    alone[BARRIER] = launch.barriers * gpu.barrier_cycles_per_warp * spread
    alone[BLOCKS] = 1e-9 * gpu.block_ns * launch.blocks

    cycles, waits, in_flight = _alone(launch, gpu, caches)
    instructions = launch.code.executed() if launch.code else _guessed(launch)
    alone[ISSUE] = instructions / QUARTERS * spread
    for name, busy_cycles in _pipes(launch, gpu).items():
        alone[name] = busy_cycles / QUARTERS * spread
    rounds = max(1.0, math.ceil(launch.blocks / gpu.multiprocessors / resident))
    if launch.blocks > 8 * resident * gpu.multiprocessors:
        rounds = waves
    alone[LATENCY] = cycles * cycle * rounds

    total = _together(alone, gpu.sharpness)
    touches = any(not it.is_shared for it in launch.accesses)
    alone[FIRST] = 1e-6 * gpu.cold_us + (caches.first_cycles * cycle if touches else 0.0)
    return Terms(
        alone,
        total + alone[FIRST],
        resident,
        limited_by,
        waves,
        in_flight * min(launch.warps, busy * together * per_block),
        caches.dram_bytes,
        SECTOR * caches.l2_sectors,
        instructions,
        waits,
    )


def _together(alone: dict[str, float], sharpness: float) -> float:
    """The norm over groups of terms: units of one kind overlap almost fully (2 * sharpness).

    Shared memory, its bank conflicts and L1 are the work of one unit.
    """
    memory = _norm([math.hypot(alone[DRAM], alone[SCATTERED]), alone[L2]], 2 * sharpness)
    data = alone[SHARED] + alone[CONFLICTS] + alone[L1]
    inside = [data, alone[ISSUE], *(alone.get(name, 0.0) for name in PIPES)]
    others = [alone[name] for name in (LATENCY, BARRIER, ATOMICS, ATOMICS_APART)]
    inner = _norm([memory, _norm(inside, 2 * sharpness), *others], sharpness)
    return _norm([inner, alone[BLOCKS]], 2 * sharpness)  # blocks come while others run


def _norm(values: list[float], p: float) -> float:
    largest = max(values)
    return largest * sum((it / largest) ** p for it in values) ** (1 / p) if largest else 0.0


def _resident(launch: Launch, gpu: Gpu, per_block: int) -> tuple[int, str]:
    """The blocks that a multiprocessor holds at once, and what limits them."""
    registers = launch.registers or GUESSED_REGISTERS
    of_warp = math.ceil(registers * WARP / 256) * 256
    limits = {
        "threads": gpu.threads // (per_block * WARP),
        "blocks": gpu.blocks,
        "registers": int(gpu.registers // of_warp) // per_block,
        "shared memory": int(gpu.shared_bytes // (launch.shared + RESERVED)),
    }
    least = min(limits, key=lambda name: limits[name])
    return max(1, limits[least]), least


def _atomics(launch: Launch, gpu: Gpu) -> tuple[float, float]:
    """Seconds of the atomics' turns: at the busiest line or 8 lines in a row, and at all lines.

    A slice of L2 changes one sector at a time, and serializes lanes that change the same word.
    Lines in a row share slices: 8 of them take `atomic_neighbours` turns at once.
    """
    adds_floats = bool(launch.code) and any(
        ".F32" in it.text and it.opcode in ("RED", "REDG", "ATOMG")
        for stretch in launch.code.stretches
        for it in stretch.instructions
    )
    word = gpu.atomic_float_ns if adds_floats else gpu.atomic_ns
    near = far = turns = same = 0.0
    for it in launch.accesses:
        if it.is_shared or it.key[2] != "atomic":
            continue
        turns, same = turns + it.sectors, same + it.sectors - it.touched
        lines = max(1.0, min(it.region_bytes / LINE, it.written * SECTOR / LINE))
        at_once = gpu.atomic_neighbours ** (math.log2(min(lines, NEIGHBOURS)) / 3)
        alone = word * (it.sectors - it.touched) + gpu.atomic_sector_ns * it.touched
        if lines <= NEIGHBOURS:
            near += alone / at_once
        else:
            at_once *= (lines / NEIGHBOURS) ** gpu.atomic_apart
            far += max(alone / at_once, it.sectors / gpu.atomics_per_ns)
    if turns:
        mean = (word * same + gpu.atomic_sector_ns * (turns - same)) / turns
        near = max(near, mean * launch.hottest)
    return 1e-9 * near, 1e-9 * far


def _sharing(launch: Launch) -> float:
    """The average number of warps of a block that read the same line."""
    reads = [it for it in launch.accesses if it.key[2] == "read" and not it.is_shared and it.lines]
    lines = sum(it.lines for it in reads)
    alone = 0.0
    for it in reads:
        new = it.first + it.earlier + sum(it.by_blocks)
        alone += it.lines * min(1.0, new / it.to_warp) if it.to_warp else it.lines
    return lines / alone if alone else 1.0


def _new(it: Access) -> float:
    """The sectors that were new to their blocks."""
    return it.first + it.earlier + sum(it.by_blocks)


def _room(it: Access) -> float:
    """Bytes of L2 that a sector takes, since L2 holds whole lines."""
    return LINE * min(1.0, it.lines / it.touched) if it.touched else SECTOR


def _whole(launch: Launch) -> float:
    """Bytes of L2 that a launch takes; what it reads is in both halves."""
    rooms: dict[tuple[int, bool], float] = {}
    for it in launch.accesses:
        if not it.is_shared:
            reads = it.key[2] == "read"
            sectors = min(_new(it) if reads else it.written, it.region_bytes / SECTOR)
            room = (2 if reads else 1) * min(_room(it) * sectors, it.region_bytes)
            key = it.region, reads
            rooms[key] = max(rooms.get(key, 0.0), room)
    return max(sum(rooms.values()), 1.0)


def _kept(scattered: float, whole: float, gpu: Gpu) -> float:
    """The part of the sectors that blocks request again that is still in L2.

    scattered: pieces of DRAM for each sector. A sweep too large for L2 leaves nothing for the next
    one; accesses in no order leave as much as L2 has room for.
    """
    fits = gpu.l2_bytes / whole
    return min(1.0, fits if scattered > SCATTERED_FROM else max(0.0, math.log2(2 * fits)))


def _take(left: dict[tuple[int, bool], float], it: Access, sectors: float) -> float:
    """Takes a sample's new sectors from those left, at most as many as the region has."""
    key = it.region, it.key[2] == "read"
    taken = min(sectors, left.setdefault(key, it.region_bytes / SECTOR))
    left[key] -= taken
    return taken


class _Caches:
    """The cache that answers requests, by the reuse distance of their sectors."""

    def __init__(self, launch: Launch, gpu: Gpu, warps: int, busy: int, before: Left):
        """warps: resident on a multiprocessor. busy: multiprocessors at work.

        before: what earlier launches of the call have left in L2.
        """
        self.l1_cycles = self.l2_sectors = self.partial = self.dram_bytes = self.stored = 0.0
        self._scattered = self._streamed = 0.0  # pieces of DRAM, in ns
        self._gpu = gpu
        # By line and bytes of a lane, or 0 for all of the line: see the end of this function.
        self._answers: dict[tuple[mc.Key, int], tuple[float, ...]] = {}
        l1 = max(
            gpu.l1_bytes - (launch.shared + RESERVED) * max(1, warps * WARP // launch.threads), 8192
        )
        # L2 allocates lines, whose sectors may partly stay empty.
        of_block = sum(_room(it) * _new(it) for it in launch.accesses) / launch.blocks
        whole = _whole(launch)
        left: dict[tuple[int, bool], float] = {}
        warps_at_once = warps
        missed = reads = 0.0
        warps = max(1.0, warps / _sharing(launch))
        weighed: dict[tuple[mc.Key, int], list[tuple[float, tuple[float, float, float]]]] = {}
        for it in launch.accesses:
            if it.is_shared or not it.requests:
                continue
            if it.key[2] != "read":
                self.l1_cycles += gpu.store_cycles * it.lines
                self._write(it, whole, left)
                continue
            data = it.asked / LINE if it.size >= 4 else it.requests
            self.l1_cycles += max(it.lines, min(data, 4 * it.requests))
            within = self._l1_hits(it, l1, warps)
            far, beyond = self._l2_hits(it, gpu, within, of_block, warps * busy)
            first = _take(left, it, it.first)
            again = it.first - first  # of a sample: of what others had asked for
            share = before.resident(it, gpu)
            resident = share * (first + it.earlier)
            gone = first + it.earlier - resident
            far += resident - it.earlier
            first = gone
            kept = _kept(it.pieces / max(_new(it), 1), whole, gpu)
            far += again * kept
            beyond += again * (1 - kept)
            missed += gone
            reads += gone + resident
            alike = it.pairs / it.first if it.first else 0.5  # of sectors, second halves
            asked = max(it.sectors, 1)
            self.l2_sectors += it.sectors - within
            # DRAM returns 64 bytes at once, half of which may be unused.
            fetched = 2 * SECTOR * (1 - alike) * (first + beyond)
            self.dram_bytes += fetched
            pieces = (first + beyond) * it.pieces / max(_new(it), 1)
            self._scatter(pieces, fetched, gpu.scattered_reads_per_ns)
            parts = (far / asked, (first + beyond) / asked, max(it.lines / it.requests, 1.0))
            for size in (0, it.size):
                weighed.setdefault((it.key, size), []).append((it.requests, parts))
        self._local(launch, l1, warps_at_once)
        self._read = self.dram_bytes - self.stored
        displaced = self._written_before(before.displaced)
        before.displaced += displaced
        self.dram_bytes += displaced
        missed = missed / reads if reads else 1.0
        self.first_cycles = missed * gpu.dram_cycles + (1 - missed) * gpu.l2_cycles
        for key, alike in weighed.items():
            total = sum(weight for weight, _ in alike)
            mean = (sum(weight * parts[i] for weight, parts in alike) / total for i in range(3))
            # Of simultaneous requests to several tensors, the slowest counts.
            far, missed = (max(parts[i] for _, parts in alike) for i in range(2))
            self._answers[key] = *mean, far, missed, len(alike)

    def _local(self, launch: Launch, l1: float, warps: float) -> None:
        """Local memory, a line for each word of a warp: stores and L1 misses go to L2.

        A block reuses the local memory of the block before it, so little of it reaches DRAM.
        Between two accesses to a word, the warps have accessed at most all their other words.
        """
        lines = {
            opcode: sum(
                stretch.runs * it.share * it.bytes / 4
                for stretch in (launch.code.stretches if launch.code else ())
                for it in stretch.instructions
                if it.opcode == opcode
            )
            for opcode in ("LDL", "STL")
        }
        gpu = self._gpu
        held = max(warps * WARP * launch.stack, 1)
        beyond = 1 - min(1.0, max(0.0, math.log2(l1 / held)))
        self.l1_cycles += lines["LDL"] + gpu.store_cycles * lines["STL"]
        self.l2_sectors += (lines["LDL"] * beyond + lines["STL"]) * LINE / SECTOR
        self.local_cycles = beyond * gpu.l2_cycles + (1 - beyond) * gpu.l1_cycles

    def _written_before(self, displaced: float) -> float:
        """Dirty bytes from before the call that L2 writes to DRAM to make room.

        The call's own bytes that stay unwritten in L2 are subtracted. displaced: by earlier
        launches.
        """
        moved = self._read + self.stored
        if self._read <= self.stored:
            return 0.0
        dirty = max(0.0, self._gpu.dirty_bytes - displaced)
        return min(self._gpu.dirty_share * moved, dirty) * (self._read - self.stored) / moved

    def dram_seconds(self) -> tuple[float, float]:
        """Seconds for the bytes, and for opening DRAM rows beyond those that a stream opens.

        DRAM is slowest when it reads as much as it writes, as a copy does.
        """
        moved = self._read + self.stored
        if not moved:
            return 0.0, 0.0
        pure, mixed = self._gpu.dram_gb_per_s, self._gpu.copy_gb_per_s
        mix = 4 * self._read * self.stored / moved**2
        moving = 1e-9 * self.dram_bytes * (1 / pure + mix * (1 / mixed - 1 / pure))
        return moving, 1e-9 * math.sqrt(max(0.0, self._scattered**2 - self._streamed**2))

    def _scatter(self, pieces: float, size: float, per_ns: float) -> None:
        streamed = size / PIECE
        self._scattered += max(pieces, streamed) / per_ns
        self._streamed += streamed / per_ns

    def latency(self, key: mc.Key | None, together: int = 1, size: int = 0) -> float:
        """Cycles that a warp waits for the last of `together` simultaneous requests.

        size: bytes that a lane requests, which distinguishes tensors accessed on one line.
        """
        gpu = self._gpu
        found = self._answers.get((key, size)) or self._answers.get((key, 0))
        if not found:
            return gpu.l2_cycles
        far, missed, lines, most_far, most_missed, regions = found
        if together > 1:
            far, missed = min(most_far, 1 - most_missed), most_missed
        further = together * lines - 1  # a cycle each, in L1
        # Tensors that are walked side by side begin their sectors at the same time.
        apart = max(1.0, together / regions)
        beyond = min(1.0, apart * (missed + far))
        # The last of several answers comes later than a single one.
        at_once = max(1.0, together * lines * (missed + far) / beyond) if beyond else 1.0
        further += beyond * gpu.doubling_cycles * math.log2(at_once)
        missed = min(1.0, apart * missed)
        far = min(1 - missed, apart * far)
        near = 1 - missed - far
        return missed * gpu.dram_cycles + far * gpu.l2_cycles + near * gpu.l1_cycles + further

    def _write(self, it: Access, whole: float, left: dict[tuple[int, bool], float]) -> None:
        """whole: L2 bytes of all that the launch touches. left: sectors not yet written."""
        gpu = self._gpu
        self.l2_sectors += it.sectors
        asked = it.asked / SECTOR
        if it.sectors > 1.01 * asked and it.key[2] != "atomic":
            self.partial += it.lines * (1 - asked / it.sectors)
        if not it.written:
            return
        first = _take(left, it, it.written)
        again = it.written - first  # of a sample: what others had written before
        gone = again * (1 - _kept(it.pieces / it.written, whole, gpu))
        # The rest of a partly written sector is read when it leaves L2.
        lacking = first * max(0.0, 1 - asked / it.written * (it.written - gone) / first)
        lacking += gone * max(0.0, 1 - asked / it.written)
        self.dram_bytes += SECTOR * (first + gone + lacking)
        self.stored += SECTOR * (first + gone)
        pieces = (first + gone) * min(1.0, it.pieces / it.written)
        if lacking > 0.01 * (first + gone):
            self._scatter(pieces, SECTOR * (first + gone), gpu.scattered_writes_per_ns)

    @staticmethod
    def _l1_hits(it: Access, l1: float, warps: int) -> float:
        hits = 0.0
        for bucket, count in enumerate(it.in_block):
            if count:
                least = LINE * warps * (2 ** (bucket - 1) if bucket else 0.5)
                hits += count * min(1.0, max(0.0, math.log2(l1 / least)))
        return hits

    @staticmethod
    def _l2_hits(
        it: Access, gpu: Gpu, within: float, of_block: float, warps: float
    ) -> tuple[float, float]:
        """The sectors that hit in L2, and those that it has evicted."""
        far, beyond = it.earlier, 0.0
        left = within
        for bucket, count in enumerate(it.in_block):
            taken = min(count, left)
            left -= taken
            least = LINE * warps * (2 ** (bucket - 1) if bucket else 0.5)
            share = min(1.0, max(0.0, math.log2(gpu.l2_bytes / least))) if least else 1.0
            far += (count - taken) * share
            beyond += (count - taken) * (1 - share)
        for bucket, count in enumerate(it.by_blocks):
            least = max(of_block * (2 ** (bucket - 1) if bucket else 1), 1.0)
            share = min(1.0, max(0.0, math.log2(gpu.l2_bytes / least)))
            far += count * share
            beyond += count * (1 - share)
        return far, beyond


def _guessed(launch: Launch) -> float:
    requests = sum(it.requests for it in launch.accesses)
    return GUESSED_PER_REQUEST * requests + 20 * launch.warps + launch.shuffles * 2


def _pipes(launch: Launch, gpu: Gpu) -> dict[str, float]:
    """Busy cycles of each unit, summed over all multiprocessor quarters."""
    found = dict.fromkeys(PIPES, 0.0)
    if launch.code:
        for stretch in launch.code.stretches:
            for it in stretch.instructions:
                unit, cycles = mc.pipe(it.opcode, it.text)
                if unit == mc.XU:
                    cycles = QUARTERS * WARP / gpu.special_per_cycle
                elif unit == mc.DOUBLE:
                    cycles = QUARTERS * WARP / gpu.double_per_cycle
                if unit in found:
                    found[unit] += cycles * stretch.runs * it.share
    is_warpgroup = bool(launch.code) and any(
        it.opcode.endswith("GMMA") for s in launch.code.stretches for it in s.instructions
    )
    per_second = 1e12 * (gpu.warpgroup_tflops if is_warpgroup else gpu.tensor_tflops)
    seconds = sum(
        operations / per_second * _cost_of(types) for types, operations in launch.products.items()
    )
    found[mc.TENSOR] = seconds * 1e9 * gpu.clock_ghz * QUARTERS * gpu.multiprocessors
    return found


def _cost_of(types: str) -> float:
    """The cost of a matrix product's operation, in 16-bit operations."""
    first = types.partition(" ")[0]
    return {"tf32": 2.0, "e4m3": 0.5, "e5m2": 0.5, "s8": 0.5, "u8": 0.5, "f64": 15.0}.get(
        first, 1.0
    )


def _alone(launch: Launch, gpu: Gpu, caches: _Caches) -> tuple[float, dict[str, float], float]:
    """Cycles of one warp running alone, by what it waits for, and its bytes in flight."""
    reads = [it for it in launch.accesses if it.key[2] == "read" and not it.is_shared]
    asked = sum(it.asked for it in reads) / max(launch.warps, 1)
    waits: dict[str, float] = {}
    if not launch.code:
        stored = {it.key[:2] for it in launch.accesses if it.is_shared and it.key[2] == "write"}
        for it in launch.accesses:
            each = it.requests / launch.warps
            name = SHARED if it.is_shared else COPIES if it.key[:2] in stored else GLOBAL
            cost = gpu.shared_cycles if it.is_shared else caches.latency(it.key)
            waits[name] = waits.get(name, 0.0) + each * cost / GUESSED_TOGETHER[name]
        of_block = math.ceil(launch.threads / WARP)
        cost = gpu.barrier_cycles + gpu.barrier_cycles_per_warp * of_block
        waits[BARRIER] = launch.barriers / launch.warps * cost
        waits["arithmetic"] = _guessed(launch) / launch.warps * GUESSED_CYCLES
        cycles = sum(waits.values())
        return cycles, waits, asked * min(1.0, gpu.dram_cycles / max(cycles, 1))
    total = 0.0
    ready: dict[str, tuple[float, str]] = {}
    pending: dict[str, mc.Instruction] = {}  # pending loads, by register
    now = 0.0
    per_warp = 1 / (launch.active or launch.warps)  # the others end at once
    for stretch in launch.code.stretches:
        weight = stretch.runs * per_warp
        if not stretch.known and not stretch.loops:
            weight = min(weight, 1.0)
        for turn in range(2 if stretch.is_loop and weight > 1 else 1):
            begin, spent = now, {}
            for it in stretch.instructions:
                start = now + 1
                for register in it.reads:
                    if register in pending:
                        _answer(pending[register], pending, ready, caches)
                    until, why = ready.get(register, (0.0, ""))
                    if until > start:
                        spent[why] = spent.get(why, 0.0) + until - start
                        start = until
                if it.opcode == "BAR":
                    cost = gpu.barrier_cycles + gpu.barrier_cycles_per_warp * launch.threads / WARP
                    spent[BARRIER] = spent.get(BARRIER, 0.0) + cost
                    start += cost
                now = start
                for register in it.writes:
                    if it.opcode in GLOBAL_LOADS:
                        pending[register] = it
                        ready[register] = (now, GLOBAL)
                    else:
                        pending.pop(register, None)
                        cycles, why = _latency(it, gpu, caches)
                        ready[register] = (now + cycles * it.share, why)
            share = weight if not (stretch.is_loop and weight > 1) else (1, weight - 1)[turn]
            total += share * (now - begin)
            for why, cycles in spent.items():
                waits[why] = waits.get(why, 0.0) + share * cycles
    waits["issue"] = max(0.0, total - sum(waits.values()))
    return total, waits, asked * min(1.0, gpu.dram_cycles / max(total, 1))


def _answer(
    it: mc.Instruction,
    pending: dict[str, mc.Instruction],
    ready: dict[str, tuple[float, str]],
    caches: _Caches,
) -> None:
    """A warp waits for a load; pending loads of the same line are answered with it."""
    alike = [
        register
        for register, load in pending.items()
        if load.key == it.key and load.bytes == it.bytes
    ]
    together = len({id(pending[register]) for register in alike})
    cycles = caches.latency(it.key, together, it.bytes)
    for register in alike:
        ready[register] = (ready[register][0] + cycles * pending.pop(register).share, GLOBAL)


def _latency(it: mc.Instruction, gpu: Gpu, caches: _Caches) -> tuple[float, str]:
    opcode = it.opcode
    if opcode in ("LDS", "LDSM", "ATOMS"):
        return gpu.shared_cycles, SHARED
    if opcode == "LDL":
        return caches.local_cycles, LOCAL
    if opcode in ("SHFL", "VOTE"):
        return gpu.shuffle_cycles, "shuffles"
    unit, _ = mc.pipe(opcode, it.text)
    if unit == mc.XU:
        return gpu.special_cycles, "special functions"
    if unit == mc.DOUBLE:
        return gpu.double_cycles, "arithmetic"
    if opcode in ("HMMA", "IMMA", "DMMA"):
        return 33.0, "tensor cores"
    if opcode in ("S2R", "LDC"):
        return 25.0, "arithmetic"
    return gpu.arithmetic_cycles, "arithmetic"
