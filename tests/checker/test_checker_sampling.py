"""Which blocks of a large launch are recorded, and what is seen all the same."""

import pytest
import torch
from checked import written

import lab

SOURCE = """
__global__ void copies(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void overlaps(float* y, int n) {
    const int i = blockIdx.x * (blockDim.x - 1) + threadIdx.x;
    if (i < n) y[i] = i;
}
__global__ void overlaps_below(float* y, int columns, int rows) {
    const int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 15 + threadIdx.y;
    if (i < columns && j < rows) y[j * columns + i] = i;
}
__global__ void sums(const float* x, float* y, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += x[k];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" {
void run_copies(const float* x, float* y, int n) { copies<<<n / 256, 256>>>(x, y, n); }
void run_overlaps(float* y, int n) { overlaps<<<(n + 254) / 255, 256>>>(y, n); }
void run_below(float* y, int columns, int rows) {
    overlaps_below<<<dim3((columns + 15) / 16, (rows + 14) / 15), dim3(16, 16)>>>(y, columns, rows);
}
void run_sums(const float* x, float* y, int n) { sums<<<4096, 64>>>(x, y, n); }
}
"""
SAMPLED = {"sample_threads": 1 << 13}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    return written(tmp_path_factory.mktemp("sampling") / "sampling.cu", SOURCE)


@pytest.mark.parametrize("order", [0, 3])
def test_a_tail_that_nobody_wrote(kernel, order):
    n = (1 << 17) + 100
    report = lab.check(kernel.run_copies, torch.rand(n), torch.empty(n), n, **SAMPLED)
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["tensor"], row["line"]) == ("unwritten", "y", 4)
    assert f"last 400 bytes were never written, from byte {4 << 17} on" in row["message"]
    even = 1 << 17
    options = SAMPLED | {"thread_order": order}
    report = lab.check(kernel.run_copies, torch.rand(even), torch.empty(even), even, **options)
    assert report.findings.empty, str(report)


@pytest.mark.parametrize("order", [0, 3])
def test_an_overlap_of_neighbours(kernel, order):
    options = SAMPLED | {"thread_order": order}
    n = 1 << 17
    for report in (
        lab.check(kernel.run_overlaps, torch.empty(n), n, **options),
        lab.check(kernel.run_below, torch.empty(300, 500), 500, 300, **options),
    ):
        assert report.sampled
        assert list(report.findings["kind"]) == ["race"], str(report)


@pytest.mark.parametrize("order", [0, 3])
@pytest.mark.parametrize("threads", [1, 300, 1000, 1 << 13])
def test_the_first_and_the_last_are_of_the_sample(kernel, order, threads):
    n, out = 100_000, torch.empty(100_000)
    options = {"sample_threads": threads, "thread_order": order}
    report = lab.check(kernel.run_copies, torch.rand(n), out, n, **options)
    assert report.launches["recorded"].item() == pytest.approx(max(4, threads // 256), abs=3)


def test_what_is_left_out_is_said(kernel):
    n = 1 << 17
    x = torch.rand(n)
    report = lab.check(kernel.run_copies, x, torch.empty(n), n, **SAMPLED)
    left = n // 256 - report.launches["recorded"].item()
    for shown in (str(report), report._repr_html_()):
        assert f"Of {left} blocks only their bounds" in shown
        assert "sample_threads= records more" in shown
    report = lab.check(kernel.run_copies, x, torch.empty(n), n)
    assert not report.sampled
    assert report.sampling_line == ""


@pytest.mark.slow
def test_launches_that_are_cheap_are_recorded_in_full(kernel):
    n = 999_936
    report = lab.check(kernel.run_copies, torch.rand(n), torch.empty(n), n)
    assert not report.sampled
    assert lab.check(kernel.run_copies, torch.rand(2 * n), torch.empty(2 * n), 2 * n).sampled
    x = torch.rand(1000)  # of few threads that run long
    assert lab.check(kernel.run_sums, x, torch.empty(1 << 18), 1000).sampled
    assert not lab.check(kernel.run_sums, x, torch.empty(1 << 18), 10).sampled


@pytest.mark.parametrize("threads", [0, -1, "all"])
def test_a_sample_of_nothing_is_refused(kernel, threads):
    with pytest.raises(ValueError, match=r"sample_threads: .*; wanted is a positive number"):
        lab.check(kernel.run_copies, torch.rand(8), torch.empty(8), 8, sample_threads=threads)
