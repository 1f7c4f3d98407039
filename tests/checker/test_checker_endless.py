"""Kernels that do not end: a check does, with where the threads stood and what it has found."""

import builtins
import time

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import jitload
import lab
from lab.notebook.extension import load_ipython_extension, unload_ipython_extension
from tests.helpers.interrupts import interrupted_after

SOURCE = """
#include <cooperative_groups.h>
__global__ void computes(int* y) {
    int x = 0;
    for (;;) if (x++ == -1) *y = x;  // computes
}
__global__ void empty() {
    while (true) {}  // empty
}
__global__ void one_block(int* y) {
    __shared__ int s[64];
    s[threadIdx.x] = 1;
    y[threadIdx.x + 64 * blockIdx.x] = s[63 - threadIdx.x];
    if (blockIdx.x == 7 && threadIdx.x == 3)
        while (true) {}  // one_block
    __syncthreads();  // wait
}
__global__ void meets(int* y) {
    while (true) {
        y[threadIdx.x]++;
        __syncthreads();  // meets
    }
}
__global__ void counts(int* y) {
    while (atomicAdd(y, 1) != -5) {}  // counts
}
__global__ void whole_grid() {
    while (true) cooperative_groups::this_grid().sync();  // whole_grid
}
__global__ void adds(int* flag) {
    while (atomicAdd(flag, 0) == 0) {}  // adds
}
__global__ void swaps(float* flag) {
    while (atomicExch(flag, 1) != 0) {}  // swaps
}
__global__ void compares(int* flag) {
    while (atomicCAS(flag, 0, 0) == 0) {}  // compares
}
__global__ void reads(volatile int* flag) {
    while (*flag == 0) {}  // reads
}
__global__ void handed_over(volatile int* flags, int* y) {
    if (threadIdx.x > 0)
        while (flags[threadIdx.x - 1] == 0) {}
    y[blockIdx.x * 32 + threadIdx.x] = 1;
    flags[threadIdx.x] = 1;
}
__global__ void locked(int* lock, int* y) {
    while (atomicExch(lock, 1) != 0) {}
    y[0] += 1;
    __threadfence();
    atomicExch(lock, 0);
}
__global__ void right(int* y) { atomicAdd(y, 1); }
extern "C" {
void run_computes(int* y) { computes<<<2, 32>>>(y); }
void run_empty() { empty<<<2, 32>>>(); }
void run_one_block(int* y) { one_block<<<16, 64>>>(y); }
void run_meets(int* y) { meets<<<2, 64>>>(y); }
void run_counts(int* y) { counts<<<2, 64>>>(y); }
cudaError_t run_whole_grid() {
    return cudaLaunchCooperativeKernel((void*)whole_grid, dim3(2), dim3(64), nullptr);
}
void run_adds(int* y) { adds<<<2, 64>>>(y); }
void run_swaps(float* y) { swaps<<<2, 64>>>(y); }
void run_compares(int* y) { compares<<<2, 64>>>(y); }
void run_reads(int* y) { reads<<<2, 64>>>(y); }
void run_handed_over(int* flags, int* y) { handed_over<<<64, 32>>>(flags, y); }
void run_locked(int* lock, int* y) { locked<<<4, 64>>>(lock, y); }
void run_right(int* y) { right<<<100, 100>>>(y); }
void run_three(int* y) {
    right<<<1, 32>>>(y);
    empty<<<1, 32>>>();
    right<<<1, 32>>>(y);
}
}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    path = tmp_path_factory.mktemp("endless") / "endless.cu"
    path.write_text(SOURCE)
    kernel = jitload.load(path, target="cpu")
    lab.check(kernel.run_right, zeros())  # the first check may have to compile the checker
    return kernel


def line_of(marker: str) -> int:
    lines = SOURCE.splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"// {marker}"))


def zeros(size: int = 1024) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32)


def timeout_of(report: lab.Report) -> dict:
    (row,) = report.findings[report.findings["kind"] == "timeout"].to_dict("records")
    return row


def next_check_is_right(kernel) -> bool:
    y = zeros()
    kernel.run_right(y)
    return y[0].item() == 10_000 and lab.check(kernel.run_right, zeros()).findings.empty


@pytest.mark.parametrize("name", ["computes", "empty", "one_block", "meets", "counts"])
def test_a_check_ends_when_its_time_is_over(kernel, name):
    started = time.perf_counter()
    function = getattr(kernel, f"run_{name}")
    report = lab.check(function, *([] if name == "empty" else [zeros()]), seconds=0.3)
    assert time.perf_counter() - started < 10
    row = timeout_of(report)
    assert "0.3 seconds" in row["message"]
    runs = report.threads.iloc[0]
    if name == "meets":  # it may be caught at the barrier's line, or at the one before
        assert line_of(name) - runs["line"] in (-1, 0, 1, 2)
    else:
        assert row["line"] == runs["line"] == line_of(name), str(report)
    assert (runs["doing"], runs["count"]) == ("runs", 1)
    blocks = report.threads.groupby("block")["count"].sum()
    assert list(blocks) == [64 if name in ("one_block", "meets", "counts") else 32]
    assert next_check_is_right(kernel)


def test_where_each_thread_stood_and_what_was_found_before(kernel):
    report = lab.check(kernel.run_one_block, zeros(), seconds=1)
    assert set(report.findings["kind"]) == {"race", "timeout"}
    runs, waits, rest = report.threads.to_dict("records")
    assert {it["block"] for it in (runs, waits, rest)} == {(7, 0, 0)}
    assert (runs["threads"], runs["line"]) == ("3", line_of("one_block"))
    assert (waits["threads"], waits["count"]) == ("0-2", 3)
    assert (waits["doing"], waits["line"]) == ("__syncthreads", line_of("wait"))
    assert (rest["doing"], rest["count"]) == ("has not begun", 60)
    assert timeout_of(report)["message"].endswith("7 of its 16 blocks had ended")
    assert not report.traffic.empty
    for shown in (str(report), report._repr_html_()):
        assert f"endless.cu:{line_of('wait')}: __syncthreads: 3 threads (0-2)" in shown


def test_blocks_that_wait_for_each_other(kernel):
    report = lab.check(kernel.run_whole_grid, seconds=0.3)
    stood = report.threads
    assert {*stood["block"]} == {(0, 0, 0), (1, 0, 0)}
    assert {*stood["line"]} == {line_of("whole_grid")}
    assert stood["count"].sum() == 128


def test_later_launches_of_the_call_do_not_run(kernel):
    y = zeros()
    report = lab.check(kernel.run_three, y, seconds=0.3)
    assert list(report.findings["kind"]) == ["timeout"]
    assert list(report.launches["kernel"]) == ["right", "empty"]

    def again_and_again():
        while True:
            kernel.run_computes(y)

    assert list(lab.check(again_and_again, seconds=0.3).findings["kind"]) == ["timeout"]


@pytest.mark.parametrize("name", ["adds", "swaps", "compares", "reads"])
def test_a_spin_that_nobody_ends_is_a_deadlock(kernel, name):
    flag = torch.ones(8) if name == "swaps" else zeros(8)
    report = lab.check(getattr(kernel, f"run_{name}"), flag)
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["line"]) == ("deadlock", line_of(name))
    assert f"endless.cu:{line_of(name)}: a" in row["message"]
    assert "waits: 64 threads (0-63)" in row["message"]


@pytest.mark.parametrize("order", [0, 1])
def test_a_spin_that_another_thread_ends_is_none(kernel, order):
    """In blocks that are not recorded in full, too."""
    for threads in (1 << 15, 64):
        options = {"thread_order": order, "sample_threads": threads, "seconds": 120}
        report = lab.check(kernel.run_handed_over, zeros(32), zeros(64 * 32), **options)
        assert not {"deadlock", "timeout"} & {*report.findings["kind"]}, str(report)
    y = zeros(1)
    report = lab.check(kernel.run_locked, zeros(1), y, thread_order=order, seconds=120)
    assert not {"deadlock", "timeout"} & {*report.findings["kind"]}, str(report)


@pytest.mark.parametrize("name", ["computes", "meets", "counts", "whole_grid"])
def test_an_interrupt_ends_a_check_within_a_second(kernel, name):
    arguments = [] if name == "whole_grid" else [zeros()]
    lab.check(kernel.run_right, zeros())  # built
    with interrupted_after(0.3) as since:
        with pytest.raises(KeyboardInterrupt, match=f"kernel {name}.* was stopped"):
            lab.check(getattr(kernel, f"run_{name}"), *arguments, seconds=60)
        assert since() < 1
    assert next_check_is_right(kernel)


@pytest.mark.parametrize("seconds", [-1, 0, float("nan"), float("inf"), "5", None])
def test_a_time_that_is_none_is_refused(kernel, seconds):
    with pytest.raises(ValueError, match=r"seconds: .*; wanted is a positive number"):
        lab.check(kernel.run_right, zeros(), seconds=seconds)


@pytest.mark.slow
def test_a_check_in_a_process_of_its_own(kernel):
    trial = lab.trial(lab.check, kernel.run_one_block, zeros(), seconds=0.5)
    assert trial.outcome == "returned", str(trial)
    assert set(trial.result.findings["kind"]) == {"race", "timeout"}
    assert str(trial).startswith("lab.check of endless.run_one_block returned after")
    assert "block (7, 0, 0)" in str(trial)
    assert "0.5 seconds" in str(trial)


def test_a_cells_check_has_a_limit(kernel):
    shell = InteractiveShell()
    shell.user_ns |= {"f": kernel.run_computes, "y": zeros()}
    load_ipython_extension(shell)
    try:
        report = shell.run_cell_magic("check", "--seconds 0.2", "f(y)")
        assert "0.2 seconds" in timeout_of(report)["message"]
    finally:
        unload_ipython_extension(shell)
        del builtins.__IPYTHON__  # the shell leaves it, and the loader asks for it
