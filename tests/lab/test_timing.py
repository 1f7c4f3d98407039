"""Time of a call, bytes of a call, and the conditions that stand beside a number."""

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from jit_cases import write

import jitload
import lab
from lab.measure import bytes_moved, copy_bandwidth, time_call, time_on_host
from lab.measure.timing import environment

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


class Clock:
    """Stands still but for calls that take the seconds they are made with."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr("lab.measure.timing.time", clock)

    def call(self, *seconds: float) -> Callable[[], None]:
        """Each takes the next of these, and all after them the last."""
        left = [*seconds]

        def take():
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return take


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_long_call_is_timed_three_times(clock):
    call = clock.call(100, 5, 7, 6, 1000)
    assert time_call(call, "cpu").median == 6


def test_time_on_the_cpu_is_wall_time():
    calls = []

    def sleeps():
        calls.append(time.sleep(0.02))

    began = time.perf_counter()
    timing = time_call(sleeps, "cpu")
    took = time.perf_counter() - began
    assert 0.02 <= timing.lower <= timing.median <= timing.upper
    assert timing.median * (len(calls) - 1) / 2 < took, "half of the calls took so long"
    assert timing.spread == timing.upper - timing.lower


LAUNCH = """
    __global__ void kernel(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }
    extern "C" void launch(float* y, int n) { kernel<<<1, 32>>>(y, n); }
    extern "C" void loop(float* y, int n) { for (int i = 0; i < n; ++i) y[i] = 1; }
"""


@pytest.fixture
def simulated(in_scratch):
    return jitload.load(write("launch.cu", LAUNCH), target="cpu")


def test_a_time_is_the_simulators_where_a_kernel_was_launched_and_else_the_cpus(simulated):
    y = torch.zeros(32)
    clocks = {
        "launched": time_call(lambda: simulated.launch(y, 32)).clock,
        "among others": time_call(lambda: (torch.exp(y), simulated.launch(y, 32))).clock,
        "no kernel": time_call(lambda: simulated.loop(y, 32), "cpu").clock,
        "torch": time_call(lambda: torch.exp(y), "cpu").clock,
    }
    assert clocks == {
        "launched": "CPU simulator",
        "among others": "CPU simulator",
        "no kernel": "CPU",
        "torch": "CPU",
    }


@pytest.mark.skipif(ON_GPU, reason="on a GPU these times are the GPU's")
def test_pytorchs_own_time_is_not_called_the_simulators_nor_drawn_beside_it(simulated):
    y = torch.zeros(32)
    calls = {"mine": lambda: simulated.launch(y, 32), "torch": lambda: torch.ones_like(y)}
    table = lab.time_calls(calls, bytes=y.nbytes)
    assert list(table["clock"]) == ["CPU simulator", "CPU"]
    assert table[["gb_per_s", "percent_of_copy"]].isna().all(axis=None)
    assert table.attrs["clock"] == "CPU simulator and CPU"
    figure = lab.plot_calls(table, "ones")
    assert [axes.get_xlabel() for axes in figure.axes] == ["predicted time (µs), 90% interval"]
    assert "predicted by lab.predict for H200" in figure.get_supxlabel()
    assert [bar.get_width() > 0 for bar in figure.axes[0].patches] == [True, False]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["mine", "torch"]

    table = lab.time_calls({"torch": calls["torch"]}, bytes=y.nbytes)
    assert (table.attrs["device"], table.attrs["clock"]) == ("CPU", "CPU")
    figure = lab.plot_calls(table, "ones")
    assert [axes.get_xlabel() for axes in figure.axes] == ["the CPU's own time (µs)"]
    assert "simulator" not in figure.get_supxlabel()


def test_the_first_call_is_not_counted(clock):
    timing = time_call(clock.call(100, 0.125), "cpu")
    assert (timing.lower, timing.median, timing.upper) == (0.125, 0.125, 0.125)


def test_default_device_is_the_loaders():
    x = torch.zeros(1 << 16, device=jitload.device())
    assert time_call(lambda: x + 1).clock == ("GPU, cold L2" if ON_GPU else "CPU")


@needs_gpu
@pytest.mark.parametrize("triton", [True, False])
def test_time_on_the_gpu_is_of_a_cold_cache(triton, monkeypatch, gpu_alone):
    if not triton:
        monkeypatch.setitem(sys.modules, "triton.testing", None)
    source = torch.zeros(1 << 22, device="cuda")  # 16 MiB, which a warm L2 would hold
    target = torch.empty_like(source)
    timing = time_call(lambda: target.copy_(source))
    assert timing.clock == "GPU, cold L2"
    assert 0 < timing.lower <= timing.median <= timing.upper
    assert 1e-9 * bytes_moved([source], [target]) / timing.median < 1.1 * copy_bandwidth()


def test_time_on_the_host_is_of_one_call(clock):
    """In rounds, of which the first warms up."""
    timing = time_on_host(clock.call(100, *[1] * 199, *[2] * 200, 4), 200)
    assert timing.clock == "host"
    assert (timing.lower, timing.median, timing.upper) == (4, 4, 4)


@needs_gpu
def test_copy_bandwidth_is_a_gpus():
    assert 50 < copy_bandwidth() < 50_000


def test_environment_names_the_machine():
    facts = environment(jitload.device())
    assert facts["torch"] == torch.__version__
    assert facts["target"] == ("cuda" if ON_GPU else "cpu")
    assert facts["clock"] == ("GPU, cold L2" if ON_GPU else "CPU simulator")
    if ON_GPU:
        assert facts["device"] == torch.cuda.get_device_name()
    else:
        assert facts["device"] == "CPU simulator"
        assert facts["driver"] is None
