"""How long a call takes, how many bytes it has to move, and how fast this GPU copies.

On a GPU a time is the GPU's own, by CUDA events, with the L2 cache flushed before every call.
Without one it is wall time: of the CPU simulator where the call launches kernels, which says
nothing about a GPU, and else of the CPU itself. `Timing.clock` tells them apart, and what has
another clock is no rival. A GPU's time stands beside the clock in MHz that held meanwhile.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import torch
from torch import Tensor

import jitload
from lab.measure import nvml
from lab.measure.clocks import Held, Watch, warn_if_disturbed

GPU_CLOCK = "GPU, cold L2"
SIMULATOR_CLOCK = "CPU simulator"
CPU_CLOCK = "CPU"  # PyTorch's own ops, and other calls that launch no kernel
HOST_CLOCK = "host"
TURNS_CLOCK = "GPU, in turns"  # of `lab.measure.turns`
ON_GPU = (GPU_CLOCK, TURNS_CLOCK)
PREDICTED = "predicted"  # of a GPU that is not there: in figures, in place of the simulator's
CLOCKS = (GPU_CLOCK, PREDICTED, SIMULATOR_CLOCK, CPU_CLOCK)  # in the order of figures and captions

QUANTILES = (0.5, 0.25, 0.75)  # the order of Timing's fields
COPY_BYTES = 4 << 30  # far more than any L2


@dataclass(frozen=True)
class Timing:
    """Time of one call in seconds: median, lower and upper quartile; and by which clock.

    held: the clock that the GPU's multiprocessors had meanwhile; None without a GPU, and where
        NVIDIA's management library says nothing.
    """

    median: float
    lower: float
    upper: float
    clock: str
    held: Held | None = None

    @property
    def spread(self) -> float:
        """Interquartile range, seconds."""
        return self.upper - self.lower

    def gb_per_s(self, bytes: int) -> float:
        """The rate at which a GPU moved `bytes`; NaN for a time that is not a GPU's."""
        return 1e-9 * bytes / self.median if self.clock in ON_GPU else math.nan


def time_call(
    call: Callable[[], object], device: torch.device | str | None = None, seconds: float = 0.1
) -> Timing:
    """Median and quartiles of the time of `call()`; first calls are not counted.

    device: where the call works, default `jitload.device()`. On "cuda" the L2 cache is flushed
    before each call, and time in which the GPU waits for a slow host counts. On "cpu", and where
    the call launches kernels on the simulator, it is wall time.
    seconds: of calls on a GPU, about.

    Warns if the GPU lowered its clock meanwhile (ThrottledWarning), or worked for another process,
    too (SharedWarning).
    """
    timing = take_time(call, device, seconds)
    warn_if_disturbed([timing.held])
    return timing


def take_time(
    call: Callable[[], object], device: torch.device | str | None = None, seconds: float = 0.1
) -> Timing:
    """`time_call` without its warning, for tables, which warn once for all their times."""
    device = jitload.device() if device is None else torch.device(device)
    launched = jitload.simulated_launches()
    call()
    if jitload.simulated_launches() > launched:
        return _wall_time(call, SIMULATOR_CLOCK)
    if device.type != "cuda":
        return _wall_time(call, CPU_CLOCK)
    with Watch(device) as watch:
        timing = _time_on_gpu(call, seconds)
    return replace(timing, held=watch.held)


def _time_on_gpu(call: Callable[[], object], seconds: float) -> Timing:
    try:
        from triton.testing import do_bench
    except ImportError:
        return _time_by_events(call, seconds)
    warmup, rep = 250 * seconds, 1000 * seconds  # milliseconds
    milliseconds = do_bench(call, warmup=warmup, rep=rep, quantiles=list(QUANTILES))
    return Timing(*(1e-3 * quantile for quantile in milliseconds), GPU_CLOCK)


def _time_by_events(call: Callable[[], object], wanted: float) -> Timing:
    """For a GPU without triton: calls between CUDA events, each after a flush, `wanted` seconds."""
    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    flush = torch.empty(4 * l2_bytes, dtype=torch.uint8, device="cuda")

    def seconds(calls: int) -> list[float]:
        events = []
        for _ in range(calls):
            start = torch.cuda.Event(enable_timing=True)
            stop = torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            call()
            stop.record()
            events.append((start, stop))
        torch.cuda.synchronize()
        return [1e-3 * start.elapsed_time(stop) for start, stop in events]

    call()
    calls = int(wanted / max(min(seconds(5)), 1e-6))
    return Timing(*quantiles(seconds(min(max(calls, 10), 500))), GPU_CLOCK)


def _wall_time(call: Callable[[], object], clock: str) -> Timing:
    """Wall time of at least 3 calls, and up to 20 as long as they take less than 0.2 s in all."""
    samples: list[float] = []
    while len(samples) < 3 or (len(samples) < 20 and sum(samples) < 0.2):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return Timing(*quantiles(samples), clock)


def time_on_host(call: Callable[[], object], calls: int) -> Timing:
    """Time that the host is busy with one call: what a GPU waits for where its work is little.

    Median and quartiles of rounds of `calls` calls, between which the GPU may catch up. Without one
    the simulator's work is in it, so only calls on next to nothing say something.
    """
    samples = [seconds_on_host(call, calls) for _ in range(8)]
    return Timing(*quantiles(samples[1:]), HOST_CLOCK)


def seconds_on_host(call: Callable[[], object], calls: int) -> float:
    """The same for one round, before which the GPU catches up."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def quantiles(samples: list[float]) -> list[float]:
    """The first three fields of a Timing."""
    wanted = torch.tensor(QUANTILES, dtype=torch.double)
    return torch.tensor(samples, dtype=torch.double).quantile(wanted).tolist()


def bytes_moved(reads: Iterable[Tensor], writes: Iterable[Tensor]) -> int:
    """The least bytes to move: each tensor of `reads` read once, each of `writes` written once.

    Counted as the tensors lie in memory: an expanded dimension (stride 0) holds its elements once,
    a tensor given twice counts once, and views of one storage never count more than it holds. A
    tensor that is both read and written (in place) counts in both.
    """
    return _bytes_held(reads) + _bytes_held(writes)


def _bytes_held(tensors: Iterable[Tensor]) -> int:
    views = {(t.data_ptr(), t.dtype, tuple(t.shape), t.stride()): t for t in tensors if t.numel()}
    held: dict[int, int] = {}
    for view in views.values():
        elements = 1
        for size, stride in zip(view.shape, view.stride(), strict=True):
            elements *= size if stride else 1
        storage = view.untyped_storage()
        total = held.get(storage.data_ptr(), 0) + elements * view.element_size()
        held[storage.data_ptr()] = min(total, storage.nbytes())
    return sum(held.values())


def copy_bandwidth() -> float:
    """GB/s of a device-to-device copy on the current GPU, bytes read plus bytes written.

    The buffer is 4 GiB, or an eighth of the free memory where that is less.
    """
    free, _ = torch.cuda.mem_get_info()
    source = torch.empty(min(COPY_BYTES, free // 8), dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    timing = take_time(lambda: target.copy_(source), source.device)
    return 1e-9 * bytes_moved([source], [target]) / timing.median


def environment(device: torch.device, clocks: Iterable[str] = ()) -> dict[str, str | None]:
    """What a number taken on `device` depends on, and what must stand beside it.

    clocks: of the times that were taken; where there are none, what kernels have there.

    Keys: target ("cuda" or "cpu"), device (the GPU's name, "CPU simulator", or "CPU" where nothing
    ran on the simulator), driver (NVIDIA's version, None where not found), torch (version), clock
    (how time was taken), date (ISO, UTC).
    """
    on_gpu = device.type == "cuda"
    taken = [clock for clock in CLOCKS if clock in set(clocks)]
    taken = taken or [GPU_CLOCK if on_gpu else SIMULATOR_CLOCK]
    return {
        "target": device.type,
        "device": torch.cuda.get_device_name(device) if on_gpu else taken[0],
        "driver": nvml.driver() if on_gpu else None,
        "torch": str(torch.__version__),
        "clock": " and ".join(taken),
        "date": datetime.now(UTC).date().isoformat(),
    }
