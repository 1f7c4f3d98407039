"""What a finding says: which call, which array, which view, and what is missing."""

import sys

import pytest
import torch
from checked import written
from jit_cases import write

import jitload
import lab
from kernel_playground.check import FOUND
from tests.helpers import forks

SOURCE = r"""
    #include <cuda_runtime.h>
    __device__ float fetch(const float* p, int i) { return p[i]; }
    __device__ __forceinline__ void load(float& value, const void* p) {
        asm volatile("ld.global.f32 %0, [%1];"
                     : "=f"(value)
                     : "l"(p));
    }
    __global__ void two_calls(const float* x, float* y, int n) {
        int i = threadIdx.x;
        y[i] = fetch(x, i);
        y[i] += fetch(x, n - 31 + i);  // wrong call
    }
    __global__ void two_loads(const float* x, float* y, int n) {
        float u, v;
        load(u, x + threadIdx.x);
        load(v, x + n - 31 + threadIdx.x);  // wrong load
        y[threadIdx.x] = u + v;
    }
    __global__ void tail(const float* x, float* y, int n) {
        __shared__ volatile float s[64];
        int t = threadIdx.x;
        s[t] = x[t];
        s[t + 32] = x[t + 32];
        __syncthreads();
        s[t] = s[t] + s[t + 16];
        s[t] = s[t] + s[t + 8];
        s[t] = s[t] + s[t + 4];
        if (t == 0) *y = s[0];
    }
    __device__ float sum_of(const float* tile, int from, int width) {
        float sum = 0;
        for (int i = 0; i < width; i++) sum += tile[from + i];
        return sum;
    }
    __global__ void past_the_array(const float* x, float* y, int n) {
        __shared__ float tile[1024];
        for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = x[0];
        __syncthreads();
        y[threadIdx.x] = sum_of(tile, 1024 - 31 + threadIdx.x, 1);
    }
    __global__ void fours(const float* x, float* y, int n) {
        reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
    }
    __global__ void rows(const signed char* x, float* y, int cols) {
        int row = 65536, col = threadIdx.x;
        y[col] = x[row * cols + col];
    }
    __global__ void raced(const float* x, float* y, int n) {
        __shared__ float s[64];
        int t = threadIdx.x + 32 * threadIdx.y;
        if (t >= 32) s[t - 32] = x[t];
        y[t] = s[t];
    }
    __global__ void without_block_index(const float* x, float* y, int n) {
        y[threadIdx.x] = x[0] + n * blockIdx.x;
    }
    __global__ void declared_twice(const float* x, float* y, int n) {
        float sum, product;
        for (int i = 0; i < n; i++) sum += x[i], product *= x[i];
        y[threadIdx.x] = sum + product;
    }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> jitload.Kernel:
    return written(tmp_path_factory.mktemp("words") / "words.cu", SOURCE)


def said(launcher, *args, block=32) -> lab.Report:
    return lab.check(lambda *them: launcher[1, block](*them), *args, traffic=False)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("name", "instruction", "call"),
    [("two_calls", "return p[i]", "wrong call"), ("two_loads", "asm volatile", "wrong load")],
)
def test_a_helpers_line_is_named_with_the_call(kernel, name, instruction, call):
    report = said(getattr(kernel, name), torch.rand(64), torch.empty(32), 64)
    (row,) = report.findings.to_dict("records")
    assert (row["line"], row["caller_line"]) == (line_of(instruction), line_of(call))
    assert f", called at words.cu:{line_of(call)}" in str(report)
    assert SOURCE.splitlines()[line_of(call) - 1].strip() in str(report)
    assert f"called at words.cu:{line_of(call)}" in report._repr_html_()


def test_lanes_of_a_warp_want_one_thing(kernel):
    """Six races, one cause."""
    report = said(kernel.tail, torch.rand(64), torch.empty(1), 0)
    (row,) = report.findings.to_dict("records")
    assert row["kind"] == "race"
    assert "the same holds of line" in row["message"]
    assert "volatile does not order them: __syncwarp()" in str(report)


def test_a_shared_array_has_its_own_name(kernel):
    report = said(kernel.past_the_array, torch.rand(1), torch.empty(32), 0)
    (row,) = report.findings.to_dict("records")
    assert row["message"] == "read of 4 bytes ends 4 bytes past the end of tile"


@pytest.mark.parametrize("shared", [True, False])
def test_a_view_is_said_to_be_one(kernel, shared):
    y = torch.empty(64)
    x = y[:32] if shared else torch.empty(32)
    report = said(kernel.fours, x, y[1:33], 0, block=8)
    (row,) = report.findings.to_dict("records")
    named = row["tensor"].endswith("[1]") or row["tensor"] in ("y", "them[1]", "argument 2")
    assert named, row["tensor"]
    assert "is a view that begins 4 bytes into its storage" in row["message"]
    assert "clone()" in str(report)
    assert said(kernel.fours, y[:32], y[32:], 0, block=8).findings.empty


def test_an_index_that_passed_2_to_the_31(kernel):
    x = torch.empty((1 << 31) + 4096, dtype=torch.int8)  # never touched, so never there

    def call(y: torch.Tensor) -> None:
        kernel.rows[1, 32](x, y, 32768)

    report = lab.check(call, torch.empty(32), traffic=False)
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["tensor"]) == ("out of bounds", "x")
    assert "row * cols + col passed 2^31" in row["message"]
    assert "2147483648" in row["message"]


@pytest.mark.parametrize(("n", "severity"), [(0, "note"), (1, "error")])
def test_a_forgotten_block_index_is_asked_for(kernel, n, severity):
    launch = kernel.without_block_index[4, 32]
    report = lab.check(launch, torch.rand(1), torch.empty(32), n, traffic=False)
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["severity"]) == ("race", severity)
    assert "does the index need blockIdx?" in str(report)


def test_what_nobody_writes_is_told_beside_a_race(kernel):
    report = said(kernel.raced, torch.rand(64), torch.empty(64), 0, block=(32, 2))
    assert {*report.findings["kind"]} == {"race", "uninitialised"}
    (row,) = report.findings[report.findings["kind"] == "uninitialised"].to_dict("records")
    assert int(row["element"].strip("s[]")) >= 32


def test_variables_of_one_line_without_a_value_are_one_finding_that_names_each(kernel):
    report = said(kernel.declared_twice, torch.rand(8) + 1, torch.empty(32), 8)
    (row,) = report.findings.to_dict("records")
    assert row["other_line"] == line_of("float sum, product")
    assert "depends on sum and product, which have no value when they are read" in row["message"]
    assert "Give it a value where it is declared." in str(report)


HOST = """
#include <vector>
__global__ void of_vector(const float* x, float* y) { y[threadIdx.x] = x[0]; }
__global__ void of_array(const float* x, float* y) { y[threadIdx.x] = x[0]; }
__global__ void of_variable(const float* x, float* y) { y[threadIdx.x] = x[0]; }
int main() {
    std::vector<float> vector(32);
    float *y, array[32] = {}, variable = 1;
    cudaMalloc(&y, 128);
    of_vector<<<1, 32>>>(vector.data(), y);
    of_array<<<1, 32>>>(array, y);
    of_variable<<<1, 32>>>(&variable, y);
    cudaDeviceSynchronize();
}
"""


def test_memory_of_the_host_is_called_that(in_scratch):
    command = [sys.executable, "-m", "kernel_playground", "check", "--errors"]
    done = forks.run([*command, write("host.cu", HOST)])
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert "3 findings in 3 launches" in done.stdout
    assert done.stdout.count("which the host has from malloc or new") == 1
    assert done.stdout.count("a variable of a function of the host") == 2
    assert done.stdout.count("cudaMemcpy") == 3


def test_what_a_launch_itself_has_of_the_host_is_no_finding(in_scratch):
    """A variable that holds the kernel, default arguments, a pointer that nobody follows."""
    path = write(
        "launches.cu",
        """
        struct Both { const float* host; float* device; };
        __global__ void fill(Both both, float value = 2) { both.device[threadIdx.x] = value; }
        template <class F> __global__ void call(F f, float* y) { y[threadIdx.x] = f(y[0]); }
        int main() {
            float x[32], *y;
            cudaMalloc(&y, 128);
            auto kernel = fill;
            kernel<<<1, 32>>>({x, y}, 1.5f);
            Both both{x, y};
            fill<<<1, 32>>>(both);
            float factor = 3;
            call<<<1, 1>>>([=] __device__(float it) { return it * factor; }, y);
            void* arguments[] = {&both, &factor};
            cudaLaunchKernel((void*)fill, 1, 32, arguments, 0, 0);
            cudaDeviceSynchronize();
            cudaFree(y);
        }
        """,
    )
    command = [sys.executable, "-m", "kernel_playground", "check", "--errors", path]
    done = forks.run(command)
    assert "no findings in 4 launches" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("*y = 1;", "if that is meant, nothing needs to change"),
        ("atomicAdd_block(y, 1);", "the function without _block"),
        ("take(blockIdx.x); __threadfence(); *y += 1; __threadfence(); give();", "the same lock"),
        ("take(0); *y += 1; __threadfence(); give();", "__threadfence() after the lock is taken"),
        ("take(0); __threadfence_block(); *y += 1; __threadfence(); give();", "other blocks'"),
    ],
)
def test_a_race_of_a_known_cause_is_told_what_mends_that(in_scratch, body, hint):
    path = write(
        "known.cu",
        f"""
        __device__ int lock;
        __device__ void take(int skips) {{ if (!skips) while (atomicCAS(&lock, 0, 1)) {{}} }}
        __device__ void give() {{ atomicExch(&lock, 0); }}
        __global__ void known(int* y) {{ {body} }}
        """,
    )
    kernel = jitload.load(path, target="cpu")
    y = torch.zeros(1, dtype=torch.int32)
    report = str(lab.check(lambda y: kernel.known[2, 1](y), y, traffic=False))
    assert hint in report
    assert "no atomic orders" not in report
