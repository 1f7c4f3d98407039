"""What a report says, and what a check leaves alone."""

import builtins
import os
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from checked import FOLDER, recipe, written
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from jit_cases import output_of

import jitload
import lab
from jitloader.handle import handle_for
from kernels.rms_norm import rms_norm
from lab.notebook.extension import load_ipython_extension, unload_ipython_extension


def kernel(name: str) -> jitload.Kernel:
    return handle_for(recipe(f"{name}.cu"))


@pytest.fixture(scope="module")
def race() -> lab.Report:
    return lab.check(kernel("races").missing_barrier, torch.rand(1000), torch.empty(1000), 1000)


def line_of(file: str | Path, code: str) -> int:
    lines = (FOLDER / file).read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if code in line)
    return number


def test_both_sides_of_a_race(race):
    (row,) = race.findings.to_dict("records")
    read = line_of("races.cu", "BUG missing_barrier")
    assert (row["kind"], row["tensor"], row["kernel"]) == ("race", "tile", "shift")
    assert {row["line"], row["other_line"]} == {read - 1, read}
    assert {row["access"], row["other_access"]} == {"read", "write"}
    assert row["block"] == row["other_block"] == (0, 0, 0)
    assert row["thread"] != row["other_thread"]
    assert row["byte"] % 4 == 0
    assert row["size"] == 4


@pytest.mark.parametrize(
    ("file", "function", "memory"),
    [
        ("memory.cu", "scratch_not_cleared", "allocation of 4000 bytes: allocated at memory.cu:{}"),
        ("memory.cu", "half_a_tile_filled", "tile: declared at memory.cu:{}"),
        (
            "memory.cu",
            "too_few_dynamic_bytes",
            "dynamic shared memory: of the launch at memory.cu:{}",
        ),
        ("memory.cu", "off_by_one", "y: given to the call"),
        ("types.cu", "freed_too_early", "allocation of 4000 bytes: allocated at types.cu:{}"),
    ],
)
def test_where_the_memory_of_a_finding_comes_from(file, function, memory):
    x, y = torch.linspace(-1, 1, 1000), torch.empty(1000)
    report = lab.check(getattr(kernel(Path(file).stem), function), x, y, 1000)
    lines = (FOLDER / file).read_text().splitlines()
    begins = next(n for n, line in enumerate(lines, 1) if re.search(rf"[ (]{function}[(,]", line))
    made = {
        "scratch_not_cleared": "cudaMalloc(&scratch",
        "half_a_tile_filled": "float tile[kThreads];",
        "too_few_dynamic_bytes": "dynamic_tile<<<",
        "freed_too_early": "cudaMalloc(&scratch",
    }.get(function, "")
    found = [n for n, line in enumerate(lines, 1) if made in line]
    at = min(found, key=lambda n: abs(n - begins))
    said = memory.format(at)
    assert said in str(report)
    assert said in report._repr_html_()
    if function == "freed_too_early":
        assert f"which types.cu:{at + 2} has freed" in str(report)


def test_how_far_past_the_end_of_what_an_earlier_launch_had():
    x, y = torch.rand(1000), torch.empty(1000)
    memory = kernel("memory")

    def calls(x: torch.Tensor, y: torch.Tensor) -> None:
        memory.too_few_dynamic_bytes(x, y, 1000)
        kernel("correct").one_thread_per_element(x, y, 1000)

    (said,) = lab.check(memory.too_few_dynamic_bytes, x, y, 1000).findings["message"]
    (again,) = lab.check(calls, x, y).findings["message"]
    assert said == again
    assert "past the end of dynamic shared memory" in said


def test_text_and_html_show_the_line_itself(race):
    for shown in (str(race), race._repr_html_()):
        assert "missing_barrier: 1 finding in 1 launch" in shown
        assert "races.cu" in shown
        for source in ("y[i] = tile[(t + 1) % kThreads];", "tile[t] = i"):
            assert source in shown


def test_the_callers_tensors_stay_as_they_are():
    x, y = torch.rand(1000), torch.full((1000,), 7.0)
    lab.check(kernel("correct").one_thread_per_element, x, y, 1000)
    assert y.eq(7).all()
    kernel("correct").one_thread_per_element(x, y, 1000)
    assert torch.equal(x, y)


def test_past_the_end_of_a_view_inside_its_storage():
    storage = torch.rand(3000)
    x, y = storage[1000:2000], torch.empty(1001)
    report = lab.check(kernel("correct").one_thread_per_element, x, y, 1001)
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["tensor"], row["byte"]) == ("out of bounds", "x", 4000)
    assert "ends 4 bytes past the end of x" in row["message"]


def test_views_that_share_memory_still_do():
    storage = torch.zeros(2000)
    x, y = storage[:1000], storage[500:1500]
    report = lab.check(kernel("correct").one_thread_per_element, x, y, 1000)
    assert set(report.findings["kind"]) == {"race"}
    assert set(report.findings["tensor"]) == {"x, y"}


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.ParameterDict({"weight": torch.ones(64)})

    def forward(self, x):
        return rms_norm(x, self.norm["weight"])


WEIGHT = torch.ones(64)


def of_a_global(x):
    return rms_norm(x, WEIGHT)


def of_a_closure(x):
    weight = torch.ones(64)
    return lambda: nested(x, weight)


def of_defaults(x, weight):
    return lambda x=x, *, weight=weight: rms_norm(x, weight)


def nested(x, weight):
    return [rms_norm(row, weight) for row in (x,)]


@pytest.mark.parametrize(
    ("function", "args", "names"),
    [
        (Scaled(), [torch.rand(8, 64)], {"x", "norm.weight"}),
        (Scaled().forward, [torch.rand(8, 64)], {"x", "norm.weight"}),
        (torch.nn.Sequential(Scaled(), Scaled()), [torch.rand(8, 64)], {"input", "0.norm.weight"}),
        (of_a_global, [torch.rand(8, 64)], {"x", "WEIGHT"}),
        (lambda x: of_a_global(x), [torch.rand(8, 64)], {"x", "WEIGHT"}),
        (of_a_closure(torch.rand(8, 64)), [], {"x", "weight"}),
        (of_defaults(torch.rand(8, 64), torch.ones(64)), [], {"x", "weight"}),
        (partial(rms_norm, torch.rand(8, 64), weight=torch.ones(64)), [], {"x", "weight"}),
    ],
    ids=[
        "module",
        "method",
        "modules",
        "global",
        "function beside",
        "closure",
        "defaults",
        "partial",
    ],
)
def test_tensors_that_the_function_captures(function, args, names):
    with torch.no_grad():
        report = lab.check(function, *args)
    assert report.findings.empty, str(report)
    assert names <= set(report.tensors["tensor"])


def test_past_the_end_of_a_captured_tensor_nothing_is_written():
    storage = torch.full((2000,), 7.0)
    x, y = torch.rand(1001), storage[:1000]
    correct = kernel("correct")  # before the check, which sees what is loaded when it begins
    report = lab.check(lambda: correct.one_thread_per_element(x, y, 1001))
    (row,) = report.findings.to_dict("records")
    assert (row["kind"], row["tensor"], row["access"]) == ("out of bounds", "y", "write")
    assert storage[1000:].eq(7).all()


def test_a_backward_pass_knows_what_forward_kept():
    x, weight = torch.rand(512, 64, requires_grad=True), torch.ones(64, requires_grad=True)
    for loss in rms_norm(x, weight).sum(), (2 * rms_norm(x, weight) + x).sum():
        report = lab.check(loss.backward)
        assert report.findings.empty, str(report)
        assert "column_sums<float>" in set(report.launches["kernel"])


SMALL = """
#include <sys/mman.h>
#define KERNEL(threads) __launch_bounds__(threads)
namespace {
template <class T, int n>
__global__ void other(T* y) __launch_bounds__((n + 31) / 32 * 32, 1) {
    y[threadIdx.x] = 0;
}
template <class T, int n>
__global__ void KERNEL((n + 31) / 32 * 32) fill(T* y) {
    __shared__ T tile[n];
    tile[threadIdx.x] = 1;
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // unknown
__device__ unsigned ticket;
__global__ void sum_of_sums(const float* x, float* scratch, float* y) {
    scratch[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    if (atomicInc(&ticket, gridDim.x - 1) != gridDim.x - 1) return;
    float sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += scratch[i];
    *y = sum;
}
// The middle of its memory, since the system can put y near an end.
float* middle() {
    return (float*)mmap(0, 1 << 26, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + (1 << 23);
}
}
extern "C" {
void by_pointer(float* y, int chosen) {
    void (*kernels[])(float*) = {other<float, 8>, fill<float, 8>};
    auto kernel = kernels[chosen];
    kernel<<<1, 8>>>(y);
    kernels[chosen]<<<1, 9>>>(y);
    fill<float, 8><<<1, 8>>>(y);
}
void of_nobody(float* y) { copy<<<1, 8>>>(middle(), y); }
void too_many(float* y) { copy<<<1, 2048>>>(y, y); }  // refused
void sum(const float* x, float* y, int n) {
    float* scratch;
    cudaMalloc(&scratch, n * sizeof(float));
    sum_of_sums<<<n, 1>>>(x, scratch, y);
    cudaFree(scratch);
}
}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("small") / "small.cu", SMALL)


def test_a_kernel_has_its_name_where_it_is_launched_through_a_pointer(small):
    """One of several instances, whatever stands beside its name; and accesses past the end of its
    array are found as ever.
    """
    for chosen, name in enumerate(("other<float, 8>", "fill<float, 8>")):
        report = lab.check(small.by_pointer, torch.empty(9), chosen)
        assert list(report.launches["kernel"]) == [name, name, "fill<float, 8>"]
        assert {*report.findings["kernel"]} == ({name} if chosen else set()), str(report)


def test_memory_that_nobody_knows_of_is_said_to_be_that(small):
    report = lab.check(small.of_nobody, torch.empty(8))
    (row,) = report.findings.to_dict("records")
    line = line_of(small.recipe.sources[0], "// unknown")
    assert (row["kind"], row["line"], row["count"]) == ("out of bounds", line, 8)
    assert "of no tensor" in row["message"]
    assert "pass it as an argument" in str(report)


def test_a_refused_launch_is_a_finding(small):
    report = lab.check(small.too_many, torch.empty(8))
    (row,) = report.findings.to_dict("records")
    line = line_of(small.recipe.sources[0], "// refused")
    assert (row["kind"], row["line"]) == ("refused launch", line)
    assert "2048" in row["message"]


BINDING = """
#include "binding.h"
cudaError_t run_half(const float* x, float* scratch, float* y, int64_t n);
Tensor forward(Tensor x) {
    Tensor scratch = new_like(x), y = new_like(x);
    check_launch(run_half(in<float>(x), out<float>(scratch), out<float>(y), x.numel()));
    return y;
}
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("forward(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
"""
HALF = """
#include <stdint.h>
__global__ void half_of_it(const float* x, float* scratch, float* y, int64_t n) {
    const int64_t i = threadIdx.x;
    if (i >= n / 2) return;
    y[i] = x[i] + scratch[i];
}
cudaError_t run_half(const float* x, float* scratch, float* y, int64_t n) {
    half_of_it<<<1, 64>>>(x, scratch, y, n);
    return cudaGetLastError();
}
"""


def test_memory_that_an_op_allocates_itself(tmp_path):
    """Scratch memory that nobody wrote before it was read, and half of the result."""
    (tmp_path / "half.cu").write_text(HALF)
    (tmp_path / "half.cpp").write_text(BINDING)
    op = jitload.load(tmp_path / "half.cu", tmp_path / "half.cpp", target="cpu")
    report = lab.check(op.forward, torch.rand(100))
    found = {row["kind"]: row for row in report.findings.to_dict("records")}
    assert set(found) == {"uninitialised", "unwritten"}
    assert found["uninitialised"]["tensor"] == "allocation of 400 bytes"
    assert found["unwritten"]["tensor"] == "result"
    assert "200 of its bytes were never written, the first at byte 200" in str(report)
    assert {row["line"] for row in found.values()} == {6}
    assert report.bytes_floor == 200 + 200  # half of x and of the result; scratch does not count


def test_errors_before_any_kernel_are_the_callers():
    with pytest.raises(TypeError, match="takes 3 arguments"):
        lab.check(kernel("correct").one_thread_per_element, torch.rand(8))
    with pytest.raises(RuntimeError, match="called no kernel"):
        lab.check(torch.relu, torch.rand(8))


def test_a_large_launch_is_sampled_and_says_so():
    n = 1 << 16
    function = kernel("correct").one_thread_per_element
    report = lab.check(function, torch.rand(n), torch.empty(n), n, sample_threads=4096)
    (launch,) = report.launches.to_dict("records")
    assert launch["blocks"] == n // 128
    assert launch["recorded"] == pytest.approx(4096 // 128, abs=2)
    assert report.sampled
    assert f"sampled: {launch['recorded']} of {launch['blocks']} blocks" in str(report)
    assert report.findings.empty
    reads = report.traffic[report.traffic["access"] == "read"]
    assert reads["requests"].item() == 4 * launch["recorded"]


def test_what_blocks_wrote_that_are_not_sampled_is_written(small):
    for threads in (100, 5):
        report = lab.check(small.sum, torch.rand(100), torch.empty(1), 100, sample_threads=threads)
        assert report.sampled == (threads == 5)
        assert report.findings.empty, str(report)


def test_errors_alone(race):
    tensors = torch.rand(1000), torch.empty(1000)
    report = lab.check(kernel("races").missing_barrier, *tensors, 1000, traffic=False)
    same = [it.findings.drop(columns="address") for it in (report, race)]
    assert same[0].equals(same[1])
    assert report.traffic.empty
    assert (report.bytes_moved, report.bytes_fetched) == (0, 0)
    for shown in (str(report), report._repr_html_()):
        assert "races.cu" in shown
        assert "global memory" not in shown
        assert "nan" not in shown


def test_an_instrumented_build_runs_outside_a_check_too():
    x, y = torch.rand(5000), torch.empty(5000)
    kernel("correct").instrumented().functions["one_thread_per_element"](x, y, 5000)
    assert torch.equal(x, y)


def test_blocks_that_are_not_sampled_are_kept_within_bounds():
    n = 1 << 16
    function = kernel("memory").off_by_one
    report = lab.check(function, torch.rand(n), torch.empty(n - 1), n - 1, sample_threads=256)
    assert set(report.findings["kind"]) == {"out of bounds"}


def test_threads_run_in_the_order_that_is_asked_for():
    function, tensors = kernel("races").missing_barrier, (torch.rand(1000), torch.empty(1000))
    reports = [lab.check(function, *tensors, 1000, thread_order=order) for order in (0, 5, 5)]
    first, second, again = (report.findings.drop(columns="address") for report in reports)
    assert second.equals(again)
    assert not second.equals(first)
    assert "thread order 5" in str(reports[1])


def test_a_gradient_is_checked_too():
    from kernels.square import square

    x = torch.rand(100, requires_grad=True)
    report = lab.check(lambda x: torch.autograd.grad(square(x).sum(), x), x)
    assert len(report.launches) == 2
    assert report.findings.empty
    assert x.grad is None


def test_a_cell_is_checked():
    shell = InteractiveShell()
    shell.user_ns |= {"f": kernel("races").missing_barrier, "torch": torch}
    load_ipython_extension(shell)
    try:
        report = shell.run_cell_magic("check", "--order 3", "x = torch.rand(9)\nf(x, x * 0, 9)")
        assert set(report.findings["kind"]) == {"race"}
        assert "thread order 3" in report.headline
        assert shell.run_line_magic("check", "f(x, x * 0, 9)").thread_order == 0
        report = shell.run_cell_magic("check", "--errors --threads 1", "f(x, x * 0, 9)")
        assert set(report.findings["kind"]) == {"race"}
        assert report.traffic.empty
        with pytest.raises(UsageError, match="ends on a call"):
            shell.run_cell_magic("check", "", "x = 1")
    finally:
        unload_ipython_extension(shell)
        del builtins.__IPYTHON__  # the shell leaves it, and the loader asks for it
    assert "check" not in shell.magics_manager.magics["cell"]


def test_one_check_at_a_time():
    function = kernel("correct").one_thread_per_element
    tensors = torch.rand(8), torch.empty(8)
    with pytest.raises(RuntimeError, match="a check is under way"):
        lab.check(lambda x, y: lab.check(function, x, y, 8), *tensors)
    assert lab.check(function, *tensors, 8).findings.empty


def test_the_kernel_runs_as_before_after_a_check():
    from kernels.square import kernel, square

    x = torch.rand(100, device=jitload.device())
    lab.check(square, x)
    assert torch.equal(square(x), x * x)
    assert kernel.forward._call is kernel.at().functions["forward"]


def test_a_check_sees_what_is_called_through_the_build_that_runs():
    from kernels.square import VERSIONS, kernel

    def square(x: torch.Tensor) -> torch.Tensor:
        return kernel.at().forward(x, len(VERSIONS) - 1)

    assert lab.check(square, torch.rand(100)).launches["kernel"].tolist()
    assert kernel.at().build == kernel.build


def test_a_report_is_the_same_on_any_number_of_cores():
    code = """
        import lab, reference
        from kernels.scale_bias_relu import scale_bias_relu
        print(lab.check(scale_bias_relu, **reference.OPS["scale_bias_relu"].inputs(32, 4095)))
    """
    reports = [
        output_of(code, env=os.environ | {"SIMULATOR_THREADS": cores}) for cores in ("1", "64")
    ]
    assert "no findings in 1 launch\n" in reports[0]
    assert reports[0] == reports[1]


def test_lanes_and_sectors():
    report = lab.check(kernel("correct").vectors_of_four, torch.rand(1000), torch.empty(1000), 1000)
    line = line_of("correct.cu", "float4 v = x[i];")
    figure = report.plot_lanes(line)
    assert f"correct.cu:{line}: read of x" in figure.get_suptitle()
    assert figure.axes[0].get_xlabel() == "16 sectors of 32 bytes"
    with pytest.raises(ValueError, match="nothing is read or written at 1"):
        report.plot_lanes(1)
    bars = report.plot_bytes().axes[0].containers[0]
    assert [bar.get_width() for bar in bars] == [4000, 4000]
