"""Addresses of shared memory: pointers' low bits as addresses, static arrays, descriptors.

A copy to tensor memory reads what its matrix descriptor says. On a GPU of compute capability 10.0
the same tests run there.
"""

from __future__ import annotations

import pytest
import torch

import jitload
import lab
from tests.simulator.test_ptx_tcgen05 import START

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
BYTES = 40 << 10  # of static shared memory, of which nvcc takes 48 KB

SOURCE = f"""
{START}
// 32 rows of 16 bytes, copied by way of tensor memory. `low`: its descriptor, and the addresses of
// the barrier and the columns, are the low bits of pointers.
__device__ void copy(char* rows, int first, int low, int* y) {{
    __shared__ uint64_t barrier;
    __shared__ unsigned memory;
    const auto address = [&](void* p) {{ return low ? (unsigned)(uint64_t)p : at(p); }};
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;"
                     :: "r"(address(&memory)) : "memory");
    for (int i = threadIdx.x; i < 128; i += 128) reinterpret_cast<int*>(rows)[i] = first + i;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&barrier)));
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    after();
    if (threadIdx.x == 0) {{
        const uint64_t descriptor =
            (address(rows) & 0x3ffff) >> 4 | 1ull << 16 | 8ull << 32 | 1ull << 46;
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
                     :: "r"(memory), "l"(descriptor));
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     :: "r"(address(&barrier)) : "memory");
    }}
    wait_for(address(&barrier), 0);
    after();
    read(memory, y, 4);
    before();
    __syncthreads();
    after();
    if (threadIdx.x < 32) deallocate(memory, 32);
}}

template <int which>
__global__ void fixed_kernel(int offset, int first, int low, int* y) {{
    __shared__ alignas(1024) char rows[{BYTES}];
    copy(rows + offset, first, low, y);
}}
extern "C" void fixed(int which, int offset, int first, int low, int* y) {{
    if (which == 0) fixed_kernel<0><<<1, 128>>>(offset, first, low, y);
    if (which == 1) fixed_kernel<1><<<1, 128>>>(offset, first, low, y);
    if (which == 2) fixed_kernel<2><<<1, 128>>>(offset, first, low, y);
}}

__global__ void dynamic_kernel(int offset, int first, int low, int* y) {{
    extern __shared__ char rows[];
    copy(rows + offset, first, low, y);
}}
extern "C" void dynamic(int bytes, int offset, int first, int low, int* y) {{
    cudaFuncSetAttribute(dynamic_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    dynamic_kernel<<<1, 128, bytes>>>(offset, first, low, y);
}}

// In each block of a cluster.
__global__ __cluster_dims__(4, 1, 1) void cluster_kernel(int offset, int low, int* y) {{
    extern __shared__ char rows[];
    copy(rows + offset, blockIdx.x * 1000, low, y + blockIdx.x * 512);
}}
extern "C" void cluster(int bytes, int offset, int low, int* y) {{
    cluster_kernel<<<4, 128, bytes>>>(offset, low, y);
}}
"""


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    if request.param == "cuda" and torch.cuda.get_device_capability()[0] != 10:
        pytest.skip("needs a GPU of compute capability 10")
    return request.param


def built(tmp_path_factory, name: str, text: str, target: str):
    path = tmp_path_factory.mktemp("window") / f"{name}.cu"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
        return jitload.load(str(path), target=target)


@pytest.fixture(scope="module")
def library(target, tmp_path_factory):
    return built(tmp_path_factory, "window", SOURCE, target)


def results(target: str, blocks: int = 1) -> torch.Tensor:
    return torch.zeros(blocks, 4, 128, dtype=torch.int32, device=target)


def rows(first: int) -> torch.Tensor:
    return (first + torch.arange(128, dtype=torch.int32)).expand(4, 128)


# Each instance of a template has its array, and all are of one library.
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("offset", [0, 16 << 10, BYTES - 512])
def test_static_arrays(library, target, which, offset):
    y = results(target)
    library.fixed(which, offset, 7 + which, 0, y)
    assert torch.equal(y[0].cpu(), rows(7 + which))


@pytest.mark.parametrize("size", [8 << 10, 220 << 10])
@pytest.mark.parametrize("low", [False, True])
def test_dynamic_arrays(library, target, low, size):
    for offset in (0, size // 2, size - 512):
        y = results(target)
        library.dynamic(size, offset, 3, low, y)
        assert torch.equal(y[0].cpu(), rows(3))


@pytest.mark.parametrize("low", [False, True])
def test_blocks_of_a_cluster_find_their_own(library, target, low):
    y = results(target, 4)
    library.cluster(40 << 10, 20 << 10, low, y)
    for block in range(4):
        assert torch.equal(y[block].cpu(), rows(1000 * block))


SMALL = f"""
{SOURCE[: SOURCE.index("template <int which>")]}
__global__ void kernel(int offset, int low, int* y) {{
    __shared__ alignas(1024) char rows[40960];
    extern __shared__ char more[];
    copy(rows + offset, 5, low, y);
    __syncthreads();
    copy(more + offset, 6, low, y + 512);
}}
extern "C" void both(int bytes, int offset, int low, int* y) {{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<1, 128, bytes>>>(offset, low, y);
}}
"""


@pytest.fixture(scope="module")
def both(target, tmp_path_factory):
    return built(tmp_path_factory, "both", SMALL, target).both


@pytest.mark.parametrize("low", [False, True])
def test_static_arrays_beside_dynamic_ones(both, target, low):
    for offset in (0, 20 << 10, (40 << 10) - 512):
        y = results(target, 2)
        both(180 << 10, offset, low, y)
        assert torch.equal(y[0].cpu(), rows(5))
        assert torch.equal(y[1].cpu(), rows(6))


ALONE = f"""
{SOURCE[: SOURCE.index("template <int which>")]}
__global__ void kernel(int offset, int low, int* y) {{
    __shared__ alignas(1024) char rows[{BYTES}];
    copy(rows + offset, 5, low, y);
}}
extern "C" void alone(int offset, int low, int* y) {{ kernel<<<1, 128>>>(offset, low, y); }}
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return built(tmp_path_factory, "alone", ALONE, "cpu").alone


@pytest.mark.parametrize("low", [False, True])
def test_static_arrays_under_the_checker(alone, low, monkeypatch):
    """Without dynamic shared memory, so that no address of that has the same low bits."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
    copied = []

    def call(y: torch.Tensor, offset: int) -> None:
        alone(offset, low, y)
        copied.append(y.clone())

    for offset in (0, 16 << 10, BYTES - 512):
        report = lab.check(call, results("cpu"), offset, traffic=False)
        assert report.findings.empty, str(report)
        assert torch.equal(copied[-1][0], rows(5))
