"""CUDA's runtime API as whole programs use it: kernels/host.cu says line by line what is wanted.

Where there is a GPU, the same source is compiled by nvcc too and must pass there as well.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import jitload
import lab

SOURCE = Path(__file__).parent / "kernels" / "host.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
FUNCTIONS = [
    "refused_launches",
    "taken_errors",
    "frees",
    "sizes",
    "kinds_of_memory",
    "boxes",
    "symbols",
    "pools",
    "streams",
    "device",
    "by_address",
    "capture",
    "nodes",
]


@pytest.fixture(scope="module", params=TARGETS)
def host(request):
    return jitload.load(str(SOURCE), name="test_host", target=request.param)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_as_cuda_has_it(host, name):
    assert getattr(host, f"run_{name}")() == 0, "the line of kernels/host.cu that is not"


def test_a_kernels_failure_stays_for_the_rest_of_the_call():
    """On a GPU it would for the rest of the process; a notebook lives on."""
    host = jitload.load(str(SOURCE), name="test_host", target="cpu")
    assert host.run_sticky_errors() == 0
    assert host.run_refused_launches() == 0


@pytest.mark.parametrize("name", ["by_address", "capture", "nodes"])
def test_the_checker_sees_launches_that_others_hold_as_any_launch(name):
    host = jitload.load(str(SOURCE), name="test_host", target="cpu")
    report = lab.check(getattr(host, f"run_{name}"))
    assert report.findings.empty, str(report)


def test_the_driver_api_beside_the_runtimes():
    driver = jitload.load(str(SOURCE.with_name("driver.cu")), name="test_driver", target="cpu")
    assert driver.run_driver() == 0


COUNTED = """
#include <nvToolsExt.h>
__global__ void multiply(int size, const float* a, const float* b, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = a[i] * b[i];
}
extern "C" int product(const float* a, const float* b, float* y, int size, cudaStream_t stream) {
    const int blocks = (size + 255) / 256;
    multiply<<<blocks, 256, COUNT * 0, stream>>>(size, a, b, y);
    return COUNT;
}
"""


@pytest.mark.parametrize("count", ["calls++", 'nvtxRangePushA("")'])
def test_a_threads_first_access_to_its_variables_loses_no_argument(tmp_path, count):
    """Before version 2.40 glibc loses vector registers there, with a descriptor of the variable:
    g++ keeps two pointers in one, at least version 12."""
    own = "thread_local int calls;\n" if "calls" in count else ""
    source = tmp_path / "counted.cu"
    source.write_text(own + COUNTED.replace("COUNT", count))
    product = jitload.load(source, target="cpu").product
    a, b = torch.rand(2, 300)

    def run() -> torch.Tensor:
        y = torch.zeros(300)
        product(a, b, y, 300)
        return y

    for _ in range(2):
        with ThreadPoolExecutor(1) as thread:
            assert torch.equal(thread.submit(run).result(), a * b)
