"""The microbenchmarks of lab.calibrate, run on this machine's GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import jitload

SOURCE = Path(__file__).with_name("microbenchmarks.cu")
SECONDS = 0.02  # of each measurement
LARGE = 1 << 30  # bytes, far more than any L2
FLUSHED = 256 << 20  # bytes, as triton.testing.do_bench has it
HOST_CYCLES = 1 << 18  # of the GPU, in which the host queues a call: 130 us
MOST_SAMPLES = 50
ROUNDS = 64  # in which each thread has loads in flight


@dataclass(frozen=True)
class Run:
    """One measurement: a microbenchmark, its parameters, and a call's time in seconds."""

    name: str
    parameters: dict[str, int]
    seconds: float


def runs(seconds: float = SECONDS) -> Iterator[Run]:
    """Yields each measurement as soon as it is made. Takes about a minute in all."""
    for name, parameters, call in _calls():
        yield Run(name, parameters, gpu_seconds(call, seconds))


def gpu_seconds(
    call: Callable[[], object], seconds: float = SECONDS, host_cycles: int = HOST_CYCLES
) -> float:
    """Median time of a call on the GPU with a cold L2, without what the host takes to launch it.

    The GPU is kept busy for `host_cycles` until the host has queued the call and the event behind
    it.
    """
    flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    call()
    samples: list[float] = []
    while len(samples) < MOST_SAMPLES and (len(samples) < 5 or sum(samples) < seconds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(host_cycles)
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        samples.append(1e-3 * start.elapsed_time(stop))
    return statistics.median(samples)


Call = tuple[str, dict[str, int], Callable[[], object]]


def _calls() -> Iterator[Call]:
    kernel = jitload.load(str(SOURCE))
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.rand(LARGE // 4, device="cuda")
    y = torch.empty_like(x)
    yield from _launches(kernel)
    yield from _cold(kernel, x, y, multiprocessors)
    yield from _dram(kernel, x, y, multiprocessors)
    yield from _caches(kernel, x, y, multiprocessors)
    yield from _pipes(kernel, y, multiprocessors)
    yield from _atomics(kernel, y, multiprocessors)


def _launches(kernel: jitload.Kernel) -> Iterator[Call]:
    for blocks, threads in ((1, 32), (132, 1024), (1 << 14, 32), (1 << 18, 32), (1 << 18, 256)):
        chosen = {"blocks": blocks, "threads": threads}
        yield "nothing", chosen, lambda b=blocks, t=threads: kernel.nothing[b, t]()
    for count in (2, 4):  # more than these the host may be too slow for
        yield (
            "launches",
            {"count": count},
            lambda n=count: [kernel.nothing[1, 32]() for _ in range(n)],
        )

    def waits() -> None:
        kernel.nothing[1, 32]()
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        kernel.nothing[1, 32]()

    yield "host waits", {}, waits


def _cold(
    kernel: jitload.Kernel, x: torch.Tensor, y: torch.Tensor, multiprocessors: int
) -> Iterator[Call]:
    """The cost of a call that finds nothing in caches: code, pages, and dirty lines in L2."""
    for count in (64, 512, 4096):
        function = getattr(kernel, f"once{count}")
        for blocks in (1, multiprocessors):
            for calls in (1, 2):
                chosen = {"instructions": count, "blocks": blocks, "calls": calls}
                yield (
                    "code",
                    chosen,
                    lambda f=function, b=blocks, c=calls: [f[b, 32](y, 3.0) for _ in range(c)],
                )
    for threads, apart in ((1, 1), (32, 1), (32, 8), (32, 1 << 10), (32, 1 << 14), (32, 1 << 19)):
        chosen = {"threads": threads, "apart": apart}
        yield "touch", chosen, lambda t=threads, a=apart: kernel.touch[1, t](x, y, a)
    for blocks, threads in ((2, 32), (multiprocessors, 32), (multiprocessors, 256)):
        for cols in (1024, 4096):
            chosen = {"blocks": blocks, "threads": threads, "cols": cols}
            yield (
                "read rows",
                chosen,
                lambda b=blocks, t=threads, c=cols: kernel.read_rows[b, t](x, y, c),
            )
            yield (
                "write rows",
                chosen,
                lambda b=blocks, t=threads, c=cols: kernel.write_rows[b, t](y, c),
            )
    for reads, writes in ((4, 0), (3, 1), (2, 2), (1, 3), (0, 4)):
        for shift in (22, 24, 25, 26, 27, 28):
            n = (1 << shift) // 64
            chosen = {"bytes": 64 * n, "reads": reads, "writes": writes}
            yield (
                "read and write",
                chosen,
                lambda n=n, r=reads, w=writes: kernel.read_and_write[-(-n // 256), 256](
                    x, y, n, r, w
                ),
            )


def _dram(
    kernel: jitload.Kernel, x: torch.Tensor, y: torch.Tensor, multiprocessors: int
) -> Iterator[Call]:
    for shift in range(12, 31, 2):
        n = (1 << shift) // 16
        blocks = -(-n // 256)
        size = {"bytes": 16 * n}
        yield "copy", size, lambda n=n, b=blocks: kernel.copy[b, 256](x, y, n)
        yield "fill", size, lambda n=n, b=blocks: kernel.fill[b, 256](y, n)
    variants = {"read1": (1, 4), "read4": (4, 4), "read1_vector": (1, 16), "read2_vector": (2, 16)}
    variants["read4_vector"] = (4, 16)
    for name, (loads, width) in variants.items():
        for warps in (1, 2, 4, 8, 16, 32, 64):
            threads = 32 * min(warps, 8)
            blocks = multiprocessors * max(1, warps // 8)
            n = min(LARGE, warps * loads * width * 32 * multiprocessors * ROUNDS) // width
            chosen = {"loads": loads, "width": width, "warps": warps, "bytes": n * width}
            function = getattr(kernel, name)
            yield "in flight", chosen, lambda f=function, b=blocks, t=threads, n=n: f[b, t](x, y, n)
    for stages in (2, 4, 8):
        for warps in (4, 8, 16, 32):
            n = min(LARGE, warps * stages * 512 * multiprocessors * ROUNDS) // 16
            blocks = multiprocessors * max(1, warps // 8)
            threads = 32 * min(warps, 8)
            chosen = {"stages": stages, "warps": warps, "bytes": 16 * n}
            function = getattr(kernel, f"staged{stages}")
            yield (
                "cp.async",
                chosen,
                lambda f=function, b=blocks, t=threads, n=n, s=stages: f[b, t, None, 16 * t * s](
                    x, y, n
                ),
            )
    for stride in (1, 2, 4, 8, 16, 32, 64):
        n = min(LARGE // 4, (1 << 25) * stride)
        blocks = n // stride // 256
        chosen = {"stride": stride, "requests": n // stride // 32}
        yield (
            "strided read",
            chosen,
            lambda n=n, s=stride, b=blocks: kernel.read_strided[b, 256](x, y, n, s),
        )
        yield (
            "strided write",
            chosen,
            lambda n=n, s=stride, b=blocks: kernel.write_strided[b, 256](y, n, s),
        )


def _caches(
    kernel: jitload.Kernel, x: torch.Tensor, y: torch.Tensor, multiprocessors: int
) -> Iterator[Call]:
    for size in (8 << 10, 2 << 20, 512 << 20):  # within L1, L2 and DRAM
        step = 32 if size < 1 << 20 else 4096 + 32
        count = size // 4
        next_ = (torch.arange(count, device="cuda") + step) % count
        next_ = next_.int()
        for steps in (2048, 8192):
            if size == 2 << 20:  # each of its lines several times
                steps += 1 << 15
            chosen = {"size": size, "steps": steps}
            yield (
                "chase",
                chosen,
                lambda i=next_, s=steps: kernel.chase[1, 1](i, y.view(torch.int32), s),
            )
    for steps in (2048, 8192):
        yield (
            "chase shared",
            {"steps": steps},
            lambda s=steps: kernel.chase_shared[1, 32](y.view(torch.int32), s),
        )
    for blocks in (multiprocessors * 2, multiprocessors * 8):
        for rounds in (64, 256):
            n = (16 << 20) // 16
            chosen = {"blocks": blocks, "rounds": rounds, "bytes": blocks * 256 * rounds * 64}
            yield "l2", chosen, lambda b=blocks, n=n, r=rounds: kernel.read_l2[b, 256](x, y, n, r)
    blocks = multiprocessors * 8
    for rounds in (64, 256):
        for stride in (1, 2, 4, 8, 16, 32):
            chosen = {"stride": stride, "rounds": rounds}
            yield "l1", chosen, lambda r=rounds, s=stride: kernel.read_l1[blocks, 256](x, y, r, s)
            yield (
                "shared",
                chosen,
                lambda r=rounds, s=stride: kernel.read_shared[blocks, 256](y, r, s),
            )
        yield (
            "l1 vector",
            {"rounds": rounds},
            lambda r=rounds: kernel.read_l1_vector[blocks, 256](x, y, r),
        )


PIPES = ("fma32", "fma64", "special", "divide")


def _pipes(kernel: jitload.Kernel, y: torch.Tensor, multiprocessors: int) -> Iterator[Call]:
    of_type = {"fma64": y.view(torch.float64)}
    for rounds in (256, 1024):
        for name in PIPES:
            out, chosen = of_type.get(name, y), {"rounds": rounds}
            function, alone = getattr(kernel, name), getattr(kernel, f"{name}_latency")
            blocks = multiprocessors * 8
            yield name, chosen, lambda f=function, o=out, r=rounds, b=blocks: f[b, 256](o, r, 3)
            yield f"{name} latency", chosen, lambda f=alone, o=out, r=rounds: f[1, 32](o, r, 3)
            few = {"rounds": rounds, "warps": 4}
            yield (
                f"{name} few",
                few,
                lambda f=alone, o=out, r=rounds, b=multiprocessors: f[b, 128](o, r, 3),
            )
        for name in ("convert", "shuffles", "mma"):
            function = getattr(kernel, name)
            for warps in (4, 16, 64):
                blocks, threads = multiprocessors * max(1, warps // 8), 32 * min(8, warps)
                chosen = {"rounds": rounds, "warps": warps}
                yield name, chosen, lambda f=function, r=rounds, b=blocks, t=threads: f[b, t](y, r)
        for threads, each in ((64, 16), (256, 8), (1024, 2), (1024, 1), (32, 1), (256, 1)):
            blocks, chosen = (
                multiprocessors * each,
                {"rounds": 4 * rounds, "threads": threads, "blocks": each},
            )
            yield (
                "barriers",
                chosen,
                lambda r=4 * rounds, b=blocks, t=threads: kernel.barriers[b, t](r),
            )


def _atomics(kernel: jitload.Kernel, y: torch.Tensor, multiprocessors: int) -> Iterator[Call]:
    whole, blocks = y.view(torch.int32), multiprocessors * 8
    for rounds in (8, 64):
        for stride, n in ((0, 1), (0, 1 << 20), (1, 1 << 20), (8, 1 << 22), (1, 32), (1, 256)):
            chosen = {"rounds": rounds, "stride": stride, "n": n}
            for name, of in (("atomics", whole), ("atomics_float", y)):
                function = getattr(kernel, name)
                yield (
                    name,
                    chosen,
                    lambda f=function, o=of, n=n, r=rounds, s=stride: f[blocks, 256](o, n, r, s),
                )
        for stride in (0, 1, 32):
            yield (
                "atomics shared",
                {"rounds": 8 * rounds, "stride": stride},
                lambda r=rounds, s=stride: kernel.atomics_shared[blocks, 256](whole, 8 * r, s),
            )
