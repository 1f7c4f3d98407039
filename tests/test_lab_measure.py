"""Time of a call, bytes of a call, and the conditions that stand beside a number."""

import sys
import time

import pytest
import torch

import jitload
from lab import bytes_moved, copy_bandwidth, measure, time_call

ON_GPU = jitload.device().type == "cuda"
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs an NVIDIA GPU")

WHOLE = torch.zeros(4, 6, dtype=torch.float32)


@pytest.mark.parametrize(
    ("reads", "writes", "expected"),
    [
        ([WHOLE], [torch.zeros(4, 6, dtype=torch.float16)], 4 * 24 + 2 * 24),
        ([WHOLE, torch.zeros(6).double()], [], 4 * 24 + 8 * 6),
        ([WHOLE, WHOLE], [], 4 * 24),  # the same tensor twice
        ([WHOLE], [WHOLE], 2 * 4 * 24),  # in place: read and written
        ([WHOLE, WHOLE.T], [], 4 * 24),  # two views of all of it
        ([WHOLE[:2], WHOLE[2:]], [], 4 * 24),  # two halves
        ([WHOLE[:2]], [], 4 * 12),
        ([WHOLE[:, ::2]], [], 4 * 12),
        ([torch.zeros(6).expand(4, 6)], [], 4 * 6),
        ([torch.zeros(()).expand(4, 6)], [], 4),
        ([torch.zeros(8).unfold(0, 4, 1)], [], 4 * 8),  # overlapping rows
        ([torch.zeros(0, 6)], [], 0),
        ([torch.zeros(3, dtype=torch.int64)], [torch.zeros(3).bool()], 8 * 3 + 3),
    ],
)
def test_bytes_moved(reads, writes, expected):
    assert bytes_moved(reads, writes) == expected


def test_time_on_the_cpu_is_wall_time_and_the_simulators():
    timing = time_call(lambda: time.sleep(0.02), "cpu")
    assert timing.clock == "CPU simulator"
    assert 0.02 <= timing.lower <= timing.median <= timing.upper < 0.2
    assert timing.spread == timing.upper - timing.lower


def test_the_first_call_is_not_counted():
    calls = []

    def slow_at_first():
        calls.append(None)
        time.sleep(0.2 if len(calls) == 1 else 0.001)

    assert time_call(slow_at_first, "cpu").upper < 0.1


def test_default_device_is_the_loaders():
    x = torch.zeros(1 << 16, device=jitload.device())
    assert time_call(lambda: x + 1).clock == ("GPU, cold L2" if ON_GPU else "CPU simulator")


@needs_gpu
@pytest.mark.parametrize("triton", [True, False])
def test_time_on_the_gpu_is_of_a_cold_cache(triton, monkeypatch):
    if not triton:
        monkeypatch.setitem(sys.modules, "triton.testing", None)
    source = torch.zeros(1 << 22, device="cuda")  # 16 MiB, which a warm L2 would hold
    target = torch.empty_like(source)
    timing = time_call(lambda: target.copy_(source))
    assert timing.clock == "GPU, cold L2"
    assert 0 < timing.lower <= timing.median <= timing.upper
    assert 1e-9 * bytes_moved([source], [target]) / timing.median < 1.1 * copy_bandwidth()


def test_time_on_the_host_is_of_one_call():
    x = torch.ones(1, device=jitload.device())
    timing = measure.time_on_host(lambda: torch.square(x), 200)
    assert timing.clock == "host"
    assert 1e-8 < timing.lower <= timing.median <= timing.upper < 1e-3


@needs_gpu
def test_copy_bandwidth_is_a_gpus():
    assert 50 < copy_bandwidth() < 50_000


def test_environment_names_the_machine():
    facts = measure.environment(jitload.device())
    assert facts["torch"] == torch.__version__
    assert facts["target"] == ("cuda" if ON_GPU else "cpu")
    assert facts["clock"] == ("GPU, cold L2" if ON_GPU else "CPU simulator")
    if ON_GPU:
        assert facts["device"] == torch.cuda.get_device_name()
    else:
        assert facts["device"] == "CPU simulator"
        assert facts["driver"] is None
