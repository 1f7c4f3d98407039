"""lab.trial: whatever a call does to its process, the notebook's lives on and knows why."""

import ctypes
import operator
import os
import re
import textwrap
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from jit_cases import in_process, write

import jitload
import lab

KERNEL = """
    #include <cstdio>
    #include <cstdlib>

    extern "C" int add(float* x, int n) {
        printf("adding\\n");
        for (int i = 0; i < n; ++i) x[i] += 1;
        return n;
    }
    extern "C" void fault(float* x) { *(volatile float*)8 = x[0]; }
    extern "C" void hang(float* x) { while (*(volatile float*)x == 0) {} }
    __global__ void past(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }

    __global__ void wait_for_all() {
        if (threadIdx.x % 32 < 16)
            __syncwarp();
        else
            __syncthreads();
    }
    extern "C" void deadlock() { wait_for_all<<<1, 64>>>(); }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory, cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(cache))
        source = tmp_path_factory.mktemp("trial") / "risky.cu"
        source.write_text(textwrap.dedent(KERNEL))
        yield jitload.load(source, target="cpu")


def test_a_call_that_returns(kernel):
    trial = lab.trial(kernel.add, torch.zeros(4), 4)
    assert trial.outcome == "returned"
    assert trial.result == 4
    assert trial.arguments[0].tolist() == [1, 1, 1, 1]
    assert trial.output == "adding"
    assert trial.seconds < 5
    assert str(trial).startswith("risky.add returned after")


@pytest.mark.usefixtures("forked")
def test_the_notebooks_tensors_are_untouched(kernel):
    x = torch.zeros(4)
    assert lab.trial(kernel.add, x, 4).arguments[0].sum() == 4
    assert x.sum() == 0


def read_at(address: int, x: torch.Tensor) -> bytes:
    return ctypes.string_at(address)


def test_a_segmentation_fault_is_told():
    trial = lab.trial(read_at, 8, torch.zeros(2, 3))
    assert trial.outcome == "crashed"
    assert "read_at crashed" in trial.report
    assert "Segmentation fault (SIGSEGV)" in trial.report
    assert "float32 [2, 3] on cpu" in trial.report
    assert "an index past the end" in trial.report
    assert "ctypes" in trial.report, "where in Python it was"
    assert "trial_process.py" not in trial.report
    with pytest.raises(RuntimeError, match="SIGSEGV"):
        _ = trial.result


@pytest.mark.usefixtures("forked")
def test_what_is_out_of_bounds_is_no_success(kernel):
    trial = lab.trial(kernel.past[4, 256], torch.zeros(1000))
    assert trial.outcome == "raised"
    assert "it writes index 1008 of x, which has 1000 elements" in trial.report
    trial = lab.trial(kernel.fault, torch.zeros(1))
    assert trial.outcome == "raised"
    assert "the host's code: illegal memory access" in trial.report


@pytest.mark.usefixtures("forked")
def test_a_hang_is_ended_at_the_limit(kernel):
    started = time.perf_counter()
    trial = lab.trial(kernel.hang, torch.zeros(1), seconds=0.5)
    assert trial.outcome == "hung"
    assert "did not return within 0.5 s" in trial.report
    assert "most recent call first" in trial.report, "where it was"
    assert time.perf_counter() - started < 30


@pytest.mark.usefixtures("forked")
def test_a_deadlock_is_told(kernel):
    trial = lab.trial(kernel.deadlock, seconds=60)
    assert trial.outcome == "raised"
    assert "wait_for_all" in trial.report


@pytest.mark.usefixtures("forked")
def test_a_process_that_ends_itself():
    trial = lab.trial(os._exit, 3)
    assert trial.outcome == "crashed"
    assert "ended its process with status 3" in trial.report


@pytest.mark.usefixtures("forked")
def test_an_error_that_is_raised(kernel):
    trial = lab.trial(kernel.add, torch.zeros(4, dtype=torch.int32), 4)
    assert trial.outcome == "raised"
    assert "TypeError: add: x is torch.int32; wanted torch.float32" in trial.report


@pytest.mark.usefixtures("forked")
def test_a_function_of_a_module_and_keywords():
    assert lab.trial(operator.add, torch.ones(2), 1).result.tolist() == [2, 2]
    trial = lab.trial(torch.sum, torch.ones(2, 3), dim=1)
    assert trial.result.tolist() == [3, 3]


@pytest.mark.usefixtures("forked")
def test_a_notebooks_own_function(kernel):
    """A closure that calls a kernel, of a module that the child cannot import."""
    scale = torch.full((4,), 2.0)

    class Pair(NamedTuple):
        x: torch.Tensor
        n: int

    def wrapper(x: torch.Tensor, *, then: Callable) -> Pair:
        n = kernel.add(x, x.numel())
        return Pair(then(x * scale), n)

    trial = lab.trial(wrapper, torch.zeros(4), then=lambda y: y + 1)
    assert trial.outcome == "returned", trial.report
    assert trial.result.x.tolist() == [3, 3, 3, 3]
    assert trial.result.n == 4
    assert "wrapper returned after" in trial.report


def test_what_cannot_be_sent_is_refused_with_a_reason():
    with pytest.raises(TypeError, match="5 cannot be called"):
        lab.trial(5)
    with pytest.raises(TypeError, match=r"operator\.add or an argument of it cannot be sent"):
        lab.trial(operator.add, threading.Lock(), 2)


@pytest.mark.parametrize(
    ("call", "patience", "where"),
    [
        (
            "kernel.spin[1, 32]",
            60,
            r"kernel spin, launched at .*, was stopped at .*spins\.cu:3 in block",
        ),
        ("subprocess.run, ['sleep', '60']", 60, r"it was at .*subprocess\.py:\d+ in "),
        ("time.sleep, 60", 0.3, ""),
        ("kernel.host_loop", 60, ""),
    ],
)
def test_a_trial_that_is_stopped_says_what_ran_and_where_it_stood(
    in_scratch, tmp_path, monkeypatch, call, patience, where
):
    """It has come into the call when it has computed there, or has started a process."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    write(
        "spins.cu",
        """
        __global__ void spin() {
            if (threadIdx.x == 7)
                while (true) {}
        }
        extern "C" void host_loop() { for (volatile int i = 0;; i = i + 1) {} }
        """,
    )
    process = in_process(
        f"""
        import lab, os, subprocess, threading, time
        from pathlib import Path
        jitload.announce(False)
        def children(process):
            tasks = Path(f"/proc/{{process}}/task").glob("*/children")
            return [child for task in tasks for child in task.read_text().split()]
        def computed(process):
            words = Path(f"/proc/{{process}}/stat").read_text().rpartition(")")[2].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        kernel = jitload.load("spins.cu", target="cpu")
        def stop():
            while not [*Path().glob("trial-*/called")]:
                time.sleep(0.01)
            [child] = children("self")
            begun, latest = computed(child), time.monotonic() + {patience}
            while computed(child) - begun < 0.3 and not children(child):
                if time.monotonic() > latest:
                    break
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=stop).start()
        lab.trial({call})
        """
    )
    _, said = process.communicate(timeout=120)
    function = call.partition("[")[0].partition(",")[0].replace("kernel", "spins")
    told = f": {where}" if where else ""
    wanted = rf"KeyboardInterrupt: the trial of {re.escape(function)} was stopped{told}.*\n"
    assert re.fullmatch(wanted, said), said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_an_illegal_address_on_the_gpu_costs_the_child_alone(tmp_path):
    source = tmp_path / "astray.cu"
    source.write_text(
        textwrap.dedent("""
        __global__ void write(float* x) { x[1ll << 40] = 1; }
        extern "C" cudaError_t astray(float* x, cudaStream_t stream) {
            write<<<1, 1, 0, stream>>>(x);
            return cudaGetLastError();
        }
        """)
    )
    x = torch.zeros(4, device="cuda")
    trial = lab.trial(jitload.load(source, target="cuda").astray, x)
    assert trial.outcome == "raised"
    assert "illegal memory access" in trial.report
    assert (x + 1).sum() == 4
