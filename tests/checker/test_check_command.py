"""kernel-playground check: programs, scripts and ops from the shell."""

import subprocess
import sys

import pytest
import torch
from jit_cases import write

import jitload
import lab
from kernel_playground.check import FOUND, reports

PROGRAM = """
    #include <cstdio>
    __global__ void twice(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i <= n) x[i] *= 2;
    }
    int main(int argc, char** argv) {
        float *x, host[100] = {};
        cudaMalloc(&x, sizeof host);
        cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
        twice<<<1, 128>>>(x, 100);
        printf("%s %d\\n", argv[1], argc);
        exit(3);
    }
"""


def test_a_program_is_checked_to_its_end(in_scratch):
    """Also where that is a call of exit(), deep inside."""
    path = write("twice.cu", PROGRAM)
    command = [sys.executable, "-m", "kernel_playground", "check", path, "--", "given"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert done.stdout.startswith("given 2\ntwice.cu: 1 finding in 1 launch\n")
    assert f"out of bounds: {path}:4," in done.stdout


def test_a_kernel_that_is_loaded_during_the_call_is_checked(in_scratch):
    write("late.cu", "__global__ void late(float* x) { x[threadIdx.x] = 1; }")

    def call(x: torch.Tensor) -> None:
        jitload.load("late.cu", target="cpu").late[1, 8](x)

    report = lab.check(call, torch.empty(4))
    assert list(report.findings["kind"]) == ["out of bounds"]
    jitload.load("late.cu", target="cpu").late[1, 4](torch.empty(4))  # its own build again


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (["nosuch"], "there is no 'nosuch'; there is square"),
        (["nosuch.cu"], "no source .*nosuch.cu"),
        (["none.cu"], r"there is no main\(\) to run"),
        (["--", "x"], "is no FILE.cu, no FILE.py and no op"),
    ],
)
def test_what_is_nothing_to_check_is_told(in_scratch, what, why):
    write("none.cu", "__global__ void k() {}")
    with pytest.raises((OSError, ValueError), match=why):
        list(reports(what, {}))
