"""tcgen05: tensor memory, what warps load and store there, and products that are summed there.

The places are those that `lab` draws, after the figures of the PTX manual; matrices are laid out as
for wgmma. On a GPU of compute capability 10.0 the same tests run there.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest
import torch

import jitload
from lab.figure.tensor_memory import accumulator_place, register_place, scale_place
from tests.helpers.tensor_cores import KINDS, random_word, summed
from tests.simulator.test_ptx_wgmma import TORCH, Layout, integers, junk, put, tensor_of

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
LANES, COLUMNS = 128, 256

START = """
#include <stdint.h>

__device__ unsigned at(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ char* rounded_up(char* p) { return p + (1024 - at(p) % 1024) % 1024; }
__device__ void wait_for(unsigned barrier, int parity) {
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
                 " @!p bra again; }" :: "r"(barrier), "r"(parity) : "memory");
}
__device__ void allocate(unsigned* to, int columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
                 :: "r"(at(to)), "r"(columns) : "memory");
}
__device__ void deallocate(unsigned address, int columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
                 :: "r"(address), "r"(columns));
}
__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ void wait_for_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ void wait_for_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// Shared memory as in the image, for the asynchronous proxy, and a barrier of one arrival. All who
// use them come to a barrier of the block afterwards.
__device__ char* prepare(char* dynamic, const int* image, int words, uint64_t* barrier) {
    char* const here = rounded_up(dynamic);
    for (int i = threadIdx.x; i < words; i += 128) reinterpret_cast<int*>(here)[i] = image[i];
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(barrier)));
    asm volatile("fence.proxy.async;" ::: "memory");
    return here;
}

// Each thread has a lane, an image of the memory has `columns` of each.
__device__ void fill(unsigned memory, const int* image, int columns) {
    const unsigned mine = memory + (threadIdx.x / 32 % 4 * 32 << 16);
    for (int i = 0; i < columns; i++)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};"
                     :: "r"(mine + i), "r"(image[threadIdx.x % 128 * columns + i]));
    wait_for_stores();
}
__device__ void read(unsigned memory, int* image, int columns) {
    const unsigned mine = memory + (threadIdx.x / 32 % 4 * 32 << 16);
    for (int i = 0; i < columns; i++) {
        int word;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(word)
                     : "r"(mine + i));
        wait_for_loads();
        image[threadIdx.x % 128 * columns + i] = word;
    }
}
"""

# ---- Loads and stores


class Access(NamedTuple):
    shape: str
    repetitions: int
    packs: bool

    @property
    def name(self) -> str:
        return f"a{self.shape}_x{self.repetitions}{'_packed' * self.packs}"

    @property
    def count(self) -> int:
        return self.repetitions * {"16x128b": 2, "16x256b": 4}.get(self.shape, 1)


ACCESSES = [
    Access(shape, repetitions, packs)
    for shape, most in (
        ("32x32b", 128),
        ("16x64b", 64),
        ("16x128b", 32),
        ("16x256b", 16),
        ("16x32bx2", 64),
    )
    for repetitions in (1, 2, 8, most)
    for packs in (False, True)
]
SPLIT = 64


def access_kernels(it: Access) -> str:
    values = ", ".join(f"%{i}" for i in range(it.count))
    inputs = ", ".join(f'"r"(v[{i}])' for i in range(it.count))
    outputs = ", ".join(f'"=r"(v[{i}])' for i in range(it.count))
    split = f", {SPLIT}" if it.shape == "16x32bx2" else ""
    shape = f"sync.aligned.{it.shape}.x{it.repetitions}"
    here = f"%{it.count}"
    return f"""
__global__ void {it.name}_kernel(int* image, int half, int* words, int loads) {{
    __shared__ unsigned memory;
    if (threadIdx.x < 32) allocate(&memory, {COLUMNS});
    __syncthreads();
    const unsigned mine = memory + ((threadIdx.x / 32 * 32 + half) << 16);
    int v[{it.count}];
    fill(memory, image, {COLUMNS});
    for (int i = 0; i < {it.count}; i++) v[i] = words[threadIdx.x * {it.count} + i];
    if (loads) {{
        asm volatile("tcgen05.ld.{shape}{".pack::16b" * it.packs}.b32"
                     " {{{values}}}, [{here}]{split};"
                     : {outputs} : "r"(mine));
        wait_for_loads();
    }} else {{
        asm volatile("tcgen05.st.{shape}{".unpack::16b" * it.packs}.b32"
                     " [{here}]{split}, {{{values}}};"
                     :: {inputs}, "r"(mine));
        wait_for_stores();
    }}
    for (int i = 0; i < {it.count}; i++) words[threadIdx.x * {it.count} + i] = v[i];
    read(memory, image, {COLUMNS});
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, {COLUMNS});
}}
extern "C" void {it.name}(int* image, int half, int* words, int loads) {{
    {it.name}_kernel<<<1, 128>>>(image, half, words, loads);
}}"""


# ---- Products

KERNELS = [("f16", False), ("f16", True), ("tf32", False), ("f8f6f4", False), ("i8", False)]


def product_kernel(kind: str, in_memory: bool) -> str:
    name = f"{kind}_{'memory' if in_memory else 'shared'}"
    scale = ", 3" if kind in ("tf32", "i8") else ""  # which ptxas leaves out with i8
    a, constraint = ("[%1]", "r") if in_memory else ("%1", "l")
    of_a = f"memory + {COLUMNS} + i * 8" if in_memory else "start + steps[2 * i]"
    return f"""
__device__ void product_{name}(unsigned d, {"unsigned" if in_memory else "long long"} a,
                               long long b, int instruction, const int (&off)[4],
                               int accumulates) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %4, 0;"
                 " tcgen05.mma.cta_group::1.kind::{kind} [%0], {a}, %2, %3,"
                 " {{%5, %6, %7, %8}}, p{scale}; }}"
                 :: "r"(d), "{constraint}"(a), "l"(b), "r"(instruction), "r"(accumulates),
                    "r"(off[0]), "r"(off[1]), "r"(off[2]), "r"(off[3]));
}}
__global__ void {name}_kernel(const int* image, int words, const int* a, const long long* steps,
                              int count, int instruction, int accumulates, const int* disabled,
                              int* D) {{
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, image, words, &barrier);
    if (threadIdx.x < 32) allocate(&memory, 512);
    __syncthreads();
    fill(memory, D, {COLUMNS});
    fill(memory + {COLUMNS}, a, 64);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {{
        after();
        const int off[4] = {{disabled[0], disabled[1], disabled[2], disabled[3]}};
        const long long start = (at(here) & 0x3ffff) >> 4;
        for (int i = 0; i < count; i++)
            product_{name}(memory, {of_a}, start + steps[2 * i + 1], instruction, off,
                           accumulates || i);
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     :: "r"(at(&barrier)) : "memory");
    }}
    wait_for(at(&barrier), 0);
    after();
    read(memory, D, {COLUMNS});
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 512);
}}
extern "C" void {name}(const int* image, int words, const int* a, const long long* steps, int count,
                       int instruction, int accumulates, const int* disabled, int* D) {{
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute({name}_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    {name}_kernel<<<1, 128, bytes>>>(image, words, a, steps, count, instruction, accumulates,
                                     disabled, D);
}}"""


REST = f"""
// A pair of blocks: each has half of A and of B, and half of D.
template <int group>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
pair_kernel(const int* images, int words, const long long* steps, int instruction,
            const int* disabled, int* D) {{
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, images + blockIdx.x * words, words, &barrier);
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;"
                     :: "r"(at(&memory)), "r"({COLUMNS}) : "memory");
    __syncthreads();
    int* const mine = D + blockIdx.x * 128 * {COLUMNS};
    fill(memory, mine, {COLUMNS});
    before();
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x == 0) {{
        after();
        const long long start = (at(here) & 0x3ffff) >> 4;
        asm volatile("{{ .reg .pred p; setp.eq.b32 p, 0, 0;"
                     " tcgen05.mma.cta_group::%12.kind::f16 [%0], %1, %2, %3,"
                     " {{%4, %5, %6, %7, %8, %9, %10, %11}}, p; }}"
                     :: "r"(memory), "l"(start + steps[0]), "l"(start + steps[1]),
                        "r"(instruction), "r"(disabled[0]), "r"(disabled[1]), "r"(disabled[2]),
                        "r"(disabled[3]), "r"(disabled[4]), "r"(disabled[5]), "r"(disabled[6]),
                        "r"(disabled[7]), "n"(group));
        asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster"
                     ".multicast::cluster.b64 [%0], %1;"
                     :: "r"(at(&barrier)), "h"(short(3)), "n"(group) : "memory");
    }}
    wait_for(at(&barrier), 0);
    after();
    read(memory, mine, {COLUMNS});
    before();
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;"
                     :: "r"(memory), "r"({COLUMNS}));
}}
extern "C" void pair(const int* images, int words, const long long* steps, int instruction,
                     const int* disabled, int* D) {{
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute(pair_kernel<2>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    pair_kernel<2><<<2, 128, bytes>>>(images, words, steps, instruction, disabled, D);
}}

// Copies from shared memory, or a shift.
__global__ void moves_kernel(const int* image, int words, long long descriptor, int which,
                             int* D) {{
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, image, words, &barrier);
    if (threadIdx.x < 32) allocate(&memory, 32);
    __syncthreads();
    fill(memory, D, 16);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {{
        after();
        const long long from = descriptor + ((at(here) & 0x3ffff) >> 4);
        const unsigned to = memory + 4;
        if (which == 0)
            asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" :: "r"(to), "l"(from));
        if (which == 1)
            asm volatile("tcgen05.cp.cta_group::1.128x128b [%0], %1;" :: "r"(to), "l"(from));
        if (which == 2)
            asm volatile("tcgen05.cp.cta_group::1.64x128b.warpx2::02_13 [%0], %1;"
                         :: "r"(to), "l"(from));
        if (which == 3)
            asm volatile("tcgen05.cp.cta_group::1.64x128b.warpx2::01_23 [%0], %1;"
                         :: "r"(to), "l"(from));
        if (which == 4)
            asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" :: "r"(to), "l"(from));
        if (which == 5) asm volatile("tcgen05.shift.cta_group::1.down [%0];" :: "r"(to));
        // Without a state space by a pointer, or by an address of shared memory.
        const uint64_t told = which % 2 ? __cvta_generic_to_shared(&barrier) : (uint64_t)&barrier;
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];"
                     :: "l"(told) : "memory");
    }}
    wait_for(at(&barrier), 0);
    after();
    read(memory, D, 16);
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 32);
}}
extern "C" void moves(const int* image, int words, long long descriptor, int which, int* D) {{
    moves_kernel<<<1, 128, words * 4 + 1024>>>(image, words, descriptor, which, D);
}}

// Each warp wants so many columns, waits for them, and tells which it has got.
__global__ void columns_kernel(int count, int returned, int relinquishes, int* found) {{
    __shared__ unsigned addresses[32];
    const int warp = threadIdx.x / 32;
    allocate(&addresses[warp], count);
    if (relinquishes)
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    if (relinquishes > 1) allocate(&addresses[warp], count);
    found[warp] = addresses[warp];
    deallocate(addresses[warp], returned);
}}
extern "C" void columns(int warps, int count, int returned, int relinquishes, int* found) {{
    columns_kernel<<<1, warps * 32>>>(count, returned, relinquishes, found);
}}

// Registers that C++ copies before the wait, out of variables whose scope ends there: in nvcc's PTX
// nothing stands between the loads and the wait. Without the wait ptxas makes the stores wait.
__global__ void chunks_kernel(const int* x, int* y, int waits) {{
    __shared__ unsigned memory;
    if (threadIdx.x < 32) allocate(&memory, 32);
    __syncthreads();
    const unsigned mine = memory + (threadIdx.x / 32 * 32 << 16);
    int v[16];
    for (int i = 0; i < 16; i++)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};"
                     :: "r"(mine + i), "r"(x[threadIdx.x * 16 + i]));
    wait_for_stores();
    for (int first = 0; first < 16; first += 4) {{
        int part[4];
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {{%0, %1, %2, %3}}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                     : "r"(mine + first));
        for (int i = 0; i < 4; i++) v[first + i] = part[i];
    }}
    if (waits) wait_for_loads();
    for (int i = 0; i < 16; i++) y[threadIdx.x * 16 + i] = v[i];
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 32);
}}
extern "C" void chunks(const int* x, int* y, int waits) {{
    chunks_kernel<<<1, 128>>>(x, y, waits);
}}

// What is seen before a wait: of a load, of a store, of a product of zeros.
__global__ void early_kernel(int* seen, int commits) {{
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    for (int i = threadIdx.x; i < 4096; i += 128) reinterpret_cast<int*>(dynamic)[i] = 0;
    if (threadIdx.x < 32) allocate(&memory, 32);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&barrier)));
    __syncthreads();
    const unsigned mine = memory + (threadIdx.x / 32 * 32 << 16);
    const int one = 1, two = 2;
    int word = 7;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};" :: "r"(mine), "r"(one));
    wait_for_stores();
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%0}}, [%1];" : "=r"(word) : "r"(mine));
    seen[threadIdx.x * 4] = word;
    wait_for_loads();
    seen[threadIdx.x * 4 + 1] = word;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};" :: "r"(mine), "r"(two));
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%0}}, [%1];" : "=r"(word) : "r"(mine));
    wait_for_loads();
    seen[threadIdx.x * 4 + 2] = word;
    wait_for_stores();
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, 0, 0;"
                     " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }}"
                     :: "r"(memory), "l"((long long)(at(dynamic) >> 4)),
                        "r"(1 << 4 | 2 << 17 | 8 << 24));
    __syncthreads();
    // In one statement with its wait, into what that declares.
    asm volatile("{{ .reg .b32 t; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{t}}, [%1];"
                 " tcgen05.wait::ld.sync.aligned; add.u32 %0, t, 10; }}" : "=r"(word) : "r"(mine));
    seen[threadIdx.x * 4 + 3] = word;
    __syncthreads();
    if (commits) {{
        if (threadIdx.x == 0)
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
                         " [%0];" :: "r"(at(&barrier)) : "memory");
        wait_for(at(&barrier), 0);
    }}
    if (threadIdx.x < 32) deallocate(memory, 32);
}}
extern "C" void early(int* seen, int commits) {{
    early_kernel<<<1, 128, 16384>>>(seen, commits);
}}

// Of a template without an instance nothing is wanted.
template <int group>
__device__ void never() {{ asm volatile("tcgen05.mma.cta_group::%0.kind::none;" :: "n"(group)); }}

// One barrier for both, and warps that only look on: none of them may miss a phase.
__global__ void phases_kernel(const int* from, int* to, int rounds) {{
    __shared__ alignas(128) int there[32];
    __shared__ alignas(8) uint64_t barrier;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&barrier)));
    __syncthreads();
    for (int i = 0; i < rounds; i++) {{
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;"
                         " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                         " [%1], [%2], 128, [%0];"
                         :: "r"(at(&barrier)), "r"(at(there)), "l"(from + 32 * i) : "memory");
        wait_for(at(&barrier), i % 2);
    }}
    to[threadIdx.x] = there[threadIdx.x % 32];
}}
extern "C" void phases(const int* from, int* to, int rounds) {{
    phases_kernel<<<1, 128>>>(from, to, rounds);
}}

__global__ void wrong_kernel(int which) {{
    __shared__ unsigned memory;
    if (threadIdx.x < 32) allocate(&memory, 32);
    __syncthreads();
    int word;
    const unsigned lane = threadIdx.x / 32 * 32 + (which == 0 ? 8 : 0);
    const unsigned column = which == 1 ? 40 : 0;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%0}}, [%1];"
                 : "=r"(word) : "r"(memory + (lane << 16) + column));
    wait_for_loads();
}}
extern "C" void wrong(int which) {{ wrong_kernel<<<1, 64>>>(which); }}

__global__ void own_lanes_kernel(const int* x, int* y, unsigned lane) {{
    __shared__ unsigned memory;
    if (threadIdx.x < 32) allocate(&memory, 32);
    __syncthreads();
    const unsigned own = memory + (threadIdx.x / 32 * 32 << 16), given = memory + (lane << 16);
    int word = x[threadIdx.x];
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};" :: "r"(given), "r"(word));
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%0}}, [%1];" : "=r"(word) : "r"(own));
    wait_for_loads();
    y[threadIdx.x] = word;
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 32);
}}
extern "C" void own_lanes(const int* x, int* y, int lane) {{
    own_lanes_kernel<<<1, 128>>>(x, y, lane);
}}
"""


def load(tmp_path_factory, target: str, text: str, name: str):
    path = tmp_path_factory.mktemp("tcgen05") / f"{name}.cu"
    path.write_text(START + text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
        return jitload.load(str(path), name=f"test_{name}", target=target)


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    if request.param == "cuda" and torch.cuda.get_device_capability() != (10, 0):
        pytest.skip("needs a GPU of compute capability 10.0")
    return request.param


@pytest.fixture(scope="module")
def accesses(tmp_path_factory, target):
    return load(
        tmp_path_factory, target, "\n".join(map(access_kernels, ACCESSES)), "tcgen05_accesses"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory, target):
    kernels = "\n".join(itertools.starmap(product_kernel, KERNELS))
    return load(tmp_path_factory, target, kernels + REST, "tcgen05")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return load(tmp_path_factory, "cpu", REST, "tcgen05_rest")


@pytest.mark.slow
@pytest.mark.parametrize("loads", [True, False], ids=["ld", "st"])
@pytest.mark.parametrize("it", ACCESSES, ids=lambda it: it.name)
def test_a_warp_loads_and_stores(accesses, target, it, loads):
    torch.manual_seed(it.count)
    image = torch.randint(0, 1 << 30, (LANES, COLUMNS), dtype=torch.int32)
    words = torch.randint(0, 1 << 30, (LANES, it.count), dtype=torch.int32)
    half = 0 if it.shape == "32x32b" else 16
    expected_image, expected_words = image.clone(), words.clone()
    for thread in range(LANES):
        for i in range(it.count):
            lane, column = register_place(it.shape, thread % 32, i, SPLIT // (2 if it.packs else 1))
            row, word = thread // 32 * 32 + half + lane, int(words[thread, i])
            if it.packs:
                low, high = (int(x) & 0xFFFF for x in image[row, 2 * column : 2 * column + 2])
                loaded = low | high << 16
                loaded -= loaded >> 31 << 32
                cells = {2 * column: word & 0xFFFF, 2 * column + 1: word >> 16}
            else:
                loaded, cells = int(image[row, column]), {column: word}
            if loads:
                expected_words[thread, i] = loaded
            else:
                for at, value in cells.items():
                    expected_image[row, at] = value
    got_image, got_words = image.to(target), words.to(target)
    getattr(accesses, it.name)(got_image, half, got_words, int(loads))
    assert torch.equal(got_words.cpu(), expected_words)
    assert torch.equal(got_image.cpu(), expected_image)


# ---- Products

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}


class Product(NamedTuple):
    m: int
    n: int
    d: str
    a: str
    b: str
    in_memory: bool = False
    negates: int = 0  # bit 0: A, bit 1: B
    transposes: int = 0
    saturates: bool = False

    @property
    def kernel(self) -> str:
        kind = {"f16": "f16", "bf16": "f16", "tf32": "tf32"}.get(self.a)
        kind = kind or ("f8f6f4" if self.a[0] == "e" else "i8")
        return f"{kind}_{'memory' if self.in_memory else 'shared'}"

    @property
    def k(self) -> int:
        return 256 // BITS[self.a]

    @property
    def instruction(self) -> int:
        return (
            self.saturates << 3
            | RESULTS[self.d] << 4
            | CODES[self.a] << 7
            | CODES[self.b] << 10
            | self.negates << 13
            | self.transposes << 15
            | self.n >> 3 << 17
            | self.m >> 4 << 24
        )


def lane_of(m: int, row: int) -> int:
    return accumulator_place(m, 8, row, 0).lane


def descriptor(
    layout: Layout, rows: int, steps: int, step: int, start: int, per_step: int = 1
) -> int:
    """per_step: steps of the layout for each of the product's."""
    step *= per_step
    leading, stride, _ = layout.offsets(rows, steps)
    if not layout.swizzle:
        at = 2 * step * leading
    elif layout.is_transposed:
        at = 2 * step * stride
    else:
        at = 32 * step % layout.swizzle + 32 * step // layout.swizzle * (rows // 8) * stride
    code = {0: 0, 128: 2, 64: 4, 32: 6}[layout.swizzle]
    bits = start + at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | code << 61
    return bits - (1 << 64) if bits >> 63 else bits


def multiplied(library, target, it: Product, a, b, c, layouts, accumulates=True, disabled=0):
    """The words of D, of 128 lanes: a and b are of words, c of 32-bit words by rows."""
    steps = a.shape[1] // it.k
    of_a, of_b = layouts
    # The layouts are those of 16 bits. Of 8 bits and transposed there are two k for one.
    both = [
        (layout, rows // 2, 2 * steps, 2)
        if BITS[it.a] == 8 and layout.is_transposed
        else (layout, rows, steps, 1)
        for layout, rows in ((of_a, it.m), (of_b, it.n))
    ]
    sizes = [-(-layout.offsets(*shape)[2] // 1024) * 1024 for layout, *shape, _ in both]
    image, starts = junk(sum(sizes)), (0, sizes[0])
    for matrix, (layout, *shape, _), first in zip((a, b), both, starts, strict=True):
        units = (matrix.t() if layout.is_transposed else matrix).contiguous().view(torch.uint8)
        places = first + layout.places(*shape)
        image[places[..., None] + torch.arange(16)] = units.view(*places.shape, 16)
    memory = torch.zeros(LANES, 64, dtype=torch.int32)
    d = torch.full((LANES, COLUMNS), -1, dtype=torch.int32)
    for row in range(it.m):
        lane = lane_of(it.m, row)
        words = a[row].contiguous().view(torch.uint8).view(torch.int32)
        memory[lane, : len(words)] = words
        d[lane, : it.n] = c[row]
    pairs = [
        [
            descriptor(*of, step, first, each)
            for (*of, each), first in zip(both, starts, strict=True)
        ]
        for step in range(steps)
    ]
    masks = [disabled >> 32 * i & 0xFFFFFFFF for i in range(4)]
    given = [
        image.view(torch.int32), len(image) // 4, memory, torch.tensor(pairs), steps,
        it.instruction, int(accumulates), tensor_of(masks, 32), d,
    ]  # fmt: skip
    given = [x.to(target) if isinstance(x, torch.Tensor) else x for x in given]
    getattr(library, it.kernel)(*given)
    return given[-1].cpu()


def words_of(c: torch.Tensor) -> torch.Tensor:
    """A number of 16 bits is the lower half of a word."""
    return c.view(torch.int32) if c.element_size() == 4 else c.view(torch.int16).int() & 0xFFFF


EXACT = [
    *(Product(m, n, "f32", "f16", "f16") for m, n in ((64, 8), (64, 248), (128, 16), (128, 256))),
    *(Product(64, 24, "f16", "f16", "f16", in_memory) for in_memory in (False, True)),
    *(Product(m, 32, "f32", "bf16", "bf16", in_memory) for m in (64, 128) for in_memory in (0, 1)),
    *(Product(128, 32, "f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    Product(64, 16, "f16", "e5m2", "e4m3"),
    *(Product(m, 48, "s32", a, b) for m, a, b in ((64, "u8", "s8"), (128, "s8", "u8"))),
    *(Product(128, 64, "f32", "bf16", "bf16", negates=n) for n in (1, 2, 3)),
    *(Product(128, 64, "f32", "f16", "f16", transposes=t) for t in (1, 2, 3)),
    Product(128, 128, "f32", "e4m3", "e4m3", transposes=3),
]


@pytest.mark.slow
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("it", EXACT, ids=lambda it: "_".join(map(str, it)))
def test_products_of_small_integers(library, target, it, swizzle):
    torch.manual_seed(it.n)
    steps = 2 if it.transposes else max(swizzle // 32, 2)
    a, b = integers(it.m, it.k * steps, it.a), integers(it.n, it.k * steps, it.b)
    c = integers(it.m, it.n, it.d, 100)
    layouts = Layout(swizzle, bool(it.transposes & 1)), Layout(swizzle, bool(it.transposes & 2))
    got = multiplied(library, target, it, a, b, words_of(c), layouts)
    sign = -1 if it.negates in (1, 2) else 1
    expected = (c.double() + sign * (a.double() @ b.double().t())).to(TORCH[it.d])
    rows = [lane_of(it.m, row) for row in range(it.m)]
    assert torch.equal(got[rows, : it.n], words_of(expected))
    others = sorted(set(range(LANES)) - set(rows))
    assert (got[others] == -1).all()
    assert (got[:, it.n :] == -1).all()


FLOATS = [
    Product(64, 8, d, a, b)
    for d, a, b in (
        ("f32", "f16", "f16"),
        ("f16", "f16", "f16"),
        ("f32", "bf16", "bf16"),
        ("f32", "e4m3", "e5m2"),
        ("f16", "e5m2", "e4m3"),
    )
]


@pytest.mark.parametrize("it", FLOATS, ids=lambda it: "_".join(map(str, it)))
def test_bits_are_those_of_wgmma_with_25_bits_kept(library, target, it):
    rng = random.Random(it.n)
    width = 16 if it.d == "f16" else 32
    for kind in KINDS:
        a = [[random_word(rng, it.a, kind) for _ in range(it.k)] for _ in range(it.m)]
        b = [[random_word(rng, it.b, kind) for _ in range(it.k)] for _ in range(it.n)]
        c = [[random_word(rng, it.d, kind) for _ in range(it.n)] for _ in range(it.m)]
        flat = [
            tensor_of([w for row in x for w in row], bits).view(len(x), -1)
            for x, bits in ((a, BITS[it.a]), (b, BITS[it.b]), (c, 32))
        ]
        got = multiplied(library, target, it, *flat, (Layout(128), Layout(128)))
        for i in rng.sample(range(it.m), 8):
            for j in range(it.n):
                want = summed(a[i], b[j], c[i][j], (it.a, it.b, it.d))
                assert hex(int(got[lane_of(it.m, i), j]) & (1 << width) - 1) == hex(want)


def test_what_was_there_may_be_scaled_and_lanes_left_as_they_are(library, target):
    it = Product(128, 16, "f32", "tf32", "tf32")
    a, b = integers(128, 8, "tf32"), integers(16, 8, "tf32")
    c = integers(128, 16, "f32", 100)
    off = 1 << 3 | 1 << 40 | 1 << 127
    layouts = Layout(32), Layout(0)
    got = multiplied(library, target, it, a, b, words_of(c), layouts, True, off)
    expected = a.double() @ b.double().t() + c.double() / 8
    for lane in (3, 40, 127):
        expected[lane] = c[lane].double()
    assert torch.equal(got[:, :16].view(torch.float32).double(), expected)


def test_integers_saturate(library, target):
    it = Product(128, 16, "s32", "s8", "s8", saturates=True)
    a, b = torch.full((128, 32), 127).to(torch.int8), torch.full((16, 32), -128).to(torch.int8)
    c = torch.full((128, 16), -(1 << 31) + 5, dtype=torch.int32)
    got = multiplied(library, target, it, a, b, c, (Layout(0), Layout(0)))
    assert (got[:, :16] == -(1 << 31)).all()


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_of_blocks(library, target, m):
    torch.manual_seed(m)
    n, rows = 96, m // 2
    a, b = integers(m, 16, "bf16"), integers(n, 16, "bf16")
    c = integers(m, n, "f32", 100)
    of = Layout(128)
    start = -(-of.offsets(rows, 1)[2] // 1024) * 1024
    images, d = [], torch.full((2, LANES, COLUMNS), -1, dtype=torch.int32)
    for block in range(2):
        image = junk(start + of.offsets(n // 2, 1)[2])
        put(image, 0, a[block * rows : (block + 1) * rows], of, 1)
        put(image, start, b[block * n // 2 : (block + 1) * n // 2], of, 1)
        images.append(image)

    places = [[accumulator_place(m, n, i, j, cta_group=2) for j in range(n)] for i in range(m)]
    places = torch.tensor(places).movedim(-1, 0)  # block, lane and column of each element
    d[tuple(places)] = words_of(c)
    it = Product(m, n, "f32", "bf16", "bf16")
    steps = [descriptor(of, rows, 1, 0, 0), descriptor(of, n // 2, 1, 0, start)]
    disabled = [0, 0, 0, 0, 0, 1 << 5, 0, 0]  # lane 37 of the second block
    image = torch.stack(images).view(torch.int32)
    got = d.to(target)
    library.pair(
        image.to(target), image.shape[1], torch.tensor(steps).to(target), it.instruction,
        tensor_of(disabled, 32).to(target), got,
    )  # fmt: skip
    got = got.cpu()
    expected = c.double() + a.double() @ b.double().t()
    is_disabled = (places[0] == 1) & (places[1] == 37)
    found = got[tuple(places)].view(torch.float32)
    assert torch.equal(found, torch.where(is_disabled, c, expected.float()))


COPIES = {
    0: (128, 8, (0, 32, 64, 96)),
    1: (128, 4, (0, 32, 64, 96)),
    2: (64, 4, (0, 32, 0, 32)),
    3: (64, 4, (0, 0, 32, 32)),
    4: (32, 4, (0, 0, 0, 0)),
}


@pytest.mark.parametrize("which", COPIES)
def test_copies_from_shared_memory(library, target, which):
    rows, words, firsts = COPIES[which]
    matrix = torch.randint(0, 1 << 30, (rows, words), dtype=torch.int32)
    image = junk(128 * 32)
    of = Layout(0)
    units = of.places(rows, 1)[:, : words // 4]
    image[units[..., None] + torch.arange(16)] = matrix.view(torch.uint8).view(rows, -1, 16)
    before = torch.randint(0, 1 << 30, (LANES, 16), dtype=torch.int32)
    expected = before.clone()
    for lane in range(LANES):
        expected[lane, 4 : 4 + words] = matrix[firsts[lane // 32] + lane % 32]
    got = before.to(target)
    library.moves(
        image.view(torch.int32).to(target), 1024, descriptor(of, rows, 1, 0, 0), which, got
    )
    assert torch.equal(got.cpu(), expected)
    if which == 4:  # what scale factors are copied with
        tile, copied = image[: 128 * 4], got.cpu().view(torch.uint8).view(LANES, 16, 4)
        for row, k in itertools.product(range(128), range(4)):
            at = scale_place(row, k)
            assert (copied[at.lane :: 32, 4 + at.column, at.byte] == tile[at.offset]).all()


def test_a_shift_moves_32_bytes_to_the_next_lane(library, target):
    before = torch.randint(0, 1 << 30, (LANES, 16), dtype=torch.int32)
    expected = before.clone()
    expected[1:, 4:12] = before[:-1, 4:12]
    got = before.to(target)
    library.moves(torch.zeros(1024, dtype=torch.int32).to(target), 1024, 0, 5, got)
    assert torch.equal(got.cpu(), expected)


# ---- Columns, and errors


def test_warps_get_columns_of_their_own_and_wait_for_those_of_others(library, target):
    found = torch.zeros(4, dtype=torch.int32).to(target)
    library.columns(4, 128, 128, 0, found)
    assert sorted(found.tolist()) in ([0, 128, 256, 384], [0, 0, 128, 256], [0, 0, 0, 0])
    library.columns(4, 512, 512, 0, found)
    assert found.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1, 48, 48, 0), r"tcgen05\.alloc: nCols is 48: it is a power of two from 32 to 512"),
        ((1, 16, 16, 0), r"tcgen05\.alloc: nCols is 16"),
        ((1, 1024, 1024, 0), r"tcgen05\.alloc: nCols is 1024"),
        ((1, 64, 32, 0), r"tcgen05\.dealloc: no tcgen05\.alloc has returned 0 for nCols of 32"),
        ((1, 64, 64, 2), r"tcgen05\.alloc: the block has given up the right to allocate"),
    ],
)
def test_wrong_columns_are_errors_that_name_them(simulated, given, message):
    with pytest.raises(RuntimeError, match=r"tcgen05_rest\.cu:\d+: thread \d+: " + message):
        simulated.columns(*given, torch.zeros(4, dtype=torch.int32))


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, r"tcgen05\.ld: its address has lane (8|40); it begins at a multiple of 32"),
        (1, r"tcgen05\.ld: columns 40 to 40 of tensor memory have not been allocated"),
    ],
)
def test_wrong_addresses_are_errors_that_say_so(simulated, which, message):
    with pytest.raises(RuntimeError, match=message):
        simulated.wrong(which)


@pytest.mark.parametrize("lane", [0, 32, 96])
def test_a_warp_reaches_its_own_lanes_whatever_the_address_says(simulated, lane):
    x, y = torch.randint(2**30, (128,), dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    simulated.own_lanes(x, y, lane)
    assert torch.equal(y, x)


def test_the_thread_that_ends_a_phase_waits_until_others_have_seen_it(simulated):
    given, got = torch.arange(160, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    simulated.phases(given, got, 5)
    assert got.tolist() == list(range(128, 160)) * 4


def test_unknown_instructions_of_a_template_are_errors_where_it_is_used(tmp_path):
    path = tmp_path / "unknown.cu"
    path.write_text(
        "template <int n> __device__ void unknown() {\n"
        '    asm volatile("tcgen05.mma.cta_group::%0.kind::none;" :: "n"(n));\n'
        "}\n__global__ void kernel() { unknown<1>(); }\n"
        'extern "C" void launch() { kernel<<<1, 1>>>(); }\n'
    )
    said = r"unknown\.cu:2.*inline PTX that the simulator does not know: tcgen05\.mma\.cta_group"
    with pytest.raises(RuntimeError, match=rf"(?s){said}"):
        jitload.load(str(path), name="test_unknown", target="cpu")


@pytest.mark.parametrize("waits", [1, 0], ids=["awaited", "never awaited"])
def test_a_load_has_its_values_when_its_columns_are_freed(simulated, waits):
    x, y = torch.randint(2**30, (128, 16), dtype=torch.int32), torch.zeros(128, 16).int()
    simulated.chunks(x, y, waits)
    assert torch.equal(y, x)


def test_a_product_that_nobody_waits_for_is_an_error_when_its_columns_are_freed(simulated):
    message = (
        r"tcgen05\.dealloc: nobody has waited for the product of thread 0 .*tcgen05_rest\.cu:\d+"
    )
    with pytest.raises(RuntimeError, match=message):
        simulated.early(torch.zeros(128, 4, dtype=torch.int32), 0)


def test_nothing_but_registers_is_there_before_it_is_waited_for(simulated):
    seen = torch.zeros(128, 4, dtype=torch.int32)
    simulated.early(seen, 1)
    # The product, which nobody has waited for, would have written 0 for 2.
    assert (seen == torch.tensor([1, 1, 1, 12])).all()
