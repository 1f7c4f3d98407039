"""What a report says of asynchronous work."""

import pytest
import torch
from checked import FOLDER, checked, kernels, written

import lab


def test_how_many_stages_are_in_flight_when_something_is_waited_for():
    waits = checked(kernels("correct_async.cu").ring_of_4).waits
    assert set(waits["wait"]) == {"cp.async.wait_group"}
    assert waits["times"].sum() == 8 * 16
    assert waits["most"].max() == 3


def test_operations_of_tensor_cores():
    products = checked(kernels("correct_async.cu").products).products
    assert set(products["types"]) == {"f16 * f16 + f32"}
    assert products["operations"].sum() == 4 * 2 * (2 * 64 * 8 * 16)
    assert "at an H200's peak" in str(checked(kernels("correct_async.cu").products))


def test_what_goes_to_several_blocks_is_read_once():
    report = checked(kernels("correct_async.cu").blocks_share_loads)
    x = report.tensors[report.tensors["tensor"] == "x"]
    assert int(x["bytes_moved"].iloc[0]) == int(x["bytes_read"].iloc[0]) == 3 * 2 * 512


# As CuTe's first tutorial of tcgen05 has it. It runs, for ptxas makes `word` wait.
NEVER_AWAITED = """
#include "export.cuh"
#include "tensor_memory.cuh"
__global__ void never_awaited_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    y[threadIdx.x] = word;
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(never_awaited, never_awaited_kernel<<<1, threads>>>(y))
"""


def test_a_load_of_tensor_memory_that_nobody_waits_for(tmp_path):
    library = written(tmp_path / "never_awaited.cu", NEVER_AWAITED, include=[str(FOLDER)])
    findings = checked(library.never_awaited).findings
    (found,) = findings[["kind", "line", "other_line", "message"]].itertuples(index=False)
    lines = NEVER_AWAITED.split("\n")
    load, free = (n for n, line in enumerate(lines, 1) if "LOAD(" in line or "deallocate(" in line)
    assert (found.kind, found.line, found.other_line) == ("tensor memory in use", free, load)
    assert "uses columns of a tcgen05.ld that nobody has waited for" in found.message


REFUSED = """
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void nothing() {}
extern "C" void encode(const float* x, int rows, int cols, int stride, int swizzle) {
    nothing<<<1, 1>>>();
    CUtensorMap map;
    cuuint64_t extent[] = {64, 64}, strides[] = {cuuint64_t(stride)};
    cuuint32_t box[] = {cuuint32_t(cols), cuuint32_t(rows)}, steps[] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)x, extent, strides, box,
                           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
"""


@pytest.fixture(scope="module")
def encode(tmp_path_factory):
    return written(tmp_path_factory.mktemp("refused") / "refused.cu", REFUSED).encode


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((8, 32, 256, 0), None),
        ((8, 32, 256, 3), None),
        ((8, 32, 256, 2), "boxDim[0] is no wider than the swizzle"),
        ((8, 30, 256, 0), "boxDim[0] is a multiple of 16 bytes"),
        ((512, 32, 256, 0), "boxDim is from 1 to 256"),
        ((8, 32, 252, 0), "globalStrides are multiples of 16 bytes"),
    ],
)
def test_a_tensor_map_that_the_driver_refuses(encode, numbers, words):
    findings = lab.check(encode, torch.zeros(64, 64), *numbers).findings
    if words is None:
        assert findings.empty
        return
    assert list(findings["kind"]) == ["tensor map"]
    assert words in findings["message"][0]
    assert REFUSED.splitlines()[findings["line"][0] - 1].strip().startswith("cuTensorMapEncode")
