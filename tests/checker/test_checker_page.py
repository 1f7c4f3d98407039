"""What a report says of each finding, in text and in HTML, and what it advises."""

import html
import re

import pytest
import torch
from checked import written
from simulated import line_of

import lab
from lab.checker.elements import Layout
from lab.gpus import gpu

SOURCE = """
constexpr int kRows = 4;
struct Pair { float a, b; };
__global__ void races(float* y) {
    __shared__ float s[kRows][32];
    s[threadIdx.x / 32][threadIdx.x % 32] = threadIdx.x;
    y[threadIdx.x] = s[3 - threadIdx.x / 32][threadIdx.x % 32];  // races
}
__global__ void leaves_gaps(Pair* y) {
    __shared__ Pair pairs[64];
    if (threadIdx.x != 5) pairs[threadIdx.x].b = 1;
    __syncthreads();
    y[threadIdx.x].a = pairs[threadIdx.x].b;
    y[threadIdx.x].b = 0;
}
__global__ void strides(const float* x, const double* z, float* y) {
    __shared__ float tile[32][32];
    __shared__ int count;
    count = 0;
    __syncthreads();
    const int t = threadIdx.x;
    tile[t][0] = x[3 * t];
    __syncthreads();
    y[t] = z[t] + tile[31 - t][0];
    y[t + 32] = x[t * t % 61];
    atomicAdd(&count, int(threadIdx.x));
}
__global__ void unequal(const float* x, const float* y, float* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = x[2 * i % n];  // by two
    z[i] += y[i % 32 * (n / 32) + i / 32];  // scattered
}
extern "C" {
void run_races(float* y) { races<<<1, 128>>>(y); }
void run_gaps(float* y) { leaves_gaps<<<1, 64>>>(reinterpret_cast<Pair*>(y)); }
void run_strides(const float* x, const double* z, float* y) { strides<<<1, 32>>>(x, z, y); }
}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    return written(tmp_path_factory.mktemp("page") / "page.cu", SOURCE)


@pytest.fixture(scope="module")
def race(kernel):
    return lab.check(kernel.run_races, torch.empty(128))


def text_of(page: str) -> str:
    """What a reader sees of it."""
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def test_text_and_html_say_the_same_of_a_finding(race):
    (row,) = race.findings.to_dict("records")
    assert row["severity"] == "error"
    assert row["hazard"] in ("read after write", "write after read")
    assert re.fullmatch(r"s\[[0-3]\]\[\d+\]", row["element"])
    for shown in (str(race), text_of(race._repr_html_())):
        assert f"race ({row['hazard']})" in shown
        assert f"{row['element']} (byte {row['byte']})" in shown
        assert f"{row['count']} times" in shown
        assert f"kernel races, block (0, 0, 0), thread {row['thread']}" in shown
        assert "No barrier, no meeting of the warp" in shown
        assert "// races" in shown


def test_elements_of_structures(kernel):
    report = lab.check(kernel.run_gaps, torch.empty(128))
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["element"], row["byte"]) == ("uninitialised", "pairs[5]", 44)


@pytest.mark.parametrize(
    ("tensor", "byte", "indices"),
    [
        (torch.empty(5, 20), 4 * (3 * 20 + 17), "[3, 17]"),
        (torch.empty(5, 20, dtype=torch.float64), 8 * 23 + 5, "[1, 3]"),
        (torch.empty(20, 5).T, 4 * (17 * 5 + 3), "[3, 17]"),
        (torch.empty(5, 20)[:, :7], 4 * (2 * 20 + 6), "[2, 6]"),
        (torch.empty(5, 20)[:, :7], 4 * (2 * 20 + 7), ""),  # in a gap
        (torch.empty(7), 28, ""),
        (torch.empty(7), -4, ""),
        (torch.empty(1).expand(8), 0, "[0]"),
        (torch.empty(()), 0, ""),
    ],
)
def test_elements_of_tensors(tensor, byte, indices):
    assert Layout.of_tensor(tensor).at(byte) == indices


def test_advice(kernel):
    x, z, y = torch.rand(200), torch.rand(32, dtype=torch.float64), torch.empty(64)
    report = lab.check(kernel.run_strides, x, z, y)
    advice = set(report.traffic["advice"]) - {""}
    assert "stride 3 over float: 12 sectors where 4 would do" in advice
    assert any(it.startswith("stride 32 over float, all in one bank: 32 passes") for it in advice)
    assert any(it.startswith("32 lanes change one address and take turns") for it in advice)
    assert any("addresses are scattered" in it for it in advice)
    reads = report.traffic[report.traffic["tensor"] == "z"]
    assert reads["advice"].tolist() == [""]
    for it in advice:
        assert it in str(report)
        assert it in text_of(report._repr_html_())


def test_advice_begins_with_what_costs_the_most_time(kernel):
    n = 1 << 18
    x, y, z = torch.rand(n), torch.rand(n), torch.empty(n)
    lines = str(lab.check(kernel.unequal[n // 256, 256], x, y, z, n)).splitlines()
    (first, second) = [line for line in lines if " would do" in line]
    by_two, scattered = (line_of(kernel.recipe.sources[0], it) for it in ("by two", "scattered"))
    assert first.startswith(f"{scattered}: read of y")
    assert second.startswith(f"{by_two}: read of x")
    us = [float(re.search(r"\(up to ([\d.]+) µs on H200\)$", it)[1]) for it in (first, second)]
    assert us[0] == pytest.approx(1e-3 * 28 * n / gpu.load("H200").l2_gb_per_s, rel=0.05)
    assert us[0] > 5 * us[1]


def test_html_has_no_style_sheet_and_no_script(race):
    """Jupyter drops both from a notebook that is opened anew."""
    shown = race._repr_html_()
    assert "<style" not in shown
    assert "<script" not in shown
    assert shown.count("<div") == shown.count("</div")
    assert shown.count("<table") == shown.count("</table")
