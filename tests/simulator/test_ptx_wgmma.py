"""wgmma.mma_async: matrices in every layout of shared memory, in every type and width.

Here, not in the kernels, matrices are laid out in shared memory: a kernel gets all of its bytes,
and the descriptors of each step along k. The layouts are those of the PTX manual and of CUTLASS
(mma_sm90_desc.hpp), the bits those of tests/helpers/tensor_cores.py.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest
import torch

import jitload
from tests.helpers.tensor_cores import KINDS, random_word, random_words, summed

pytestmark = pytest.mark.slow
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

# ---- Products and their kernels

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "s8": torch.int8,
    "u8": torch.uint8,
    "s32": torch.int32,
}


class Product(NamedTuple):
    n: int
    d: str
    a: str
    b: str
    in_registers: bool = False  # A
    scale_a: int = 1
    scale_b: int = 1
    trans_a: int = 0
    trans_b: int = 0
    saturates: bool = False

    @property
    def name(self) -> str:
        shown = [f"n{self.n}", self.d, self.a, self.b]
        shown += ["registers"] * self.in_registers + ["satfinite"] * self.saturates
        shown += ["minus_a"] * (self.scale_a < 0) + ["minus_b"] * (self.scale_b < 0)
        return "_".join(shown + ["trans_a"] * self.trans_a + ["trans_b"] * self.trans_b)

    @property
    def k(self) -> int:
        """Elements of 32 bytes: what one instruction multiplies."""
        return 256 // BITS[self.a]

    @property
    def count(self) -> int:
        """Accumulators of a thread."""
        return self.n // (4 if self.d == "f16" else 2)

    @property
    def of_d(self) -> str:
        return "float" if self.d == "f32" else "int"

    def statement(self) -> str:
        """On accumulators d[], words a[] or a descriptor a, a descriptor b, and scale_d."""
        first = self.count + (4 if self.in_registers else 1)
        d = ", ".join(f"%{i}" for i in range(self.count))
        a = f"%{self.count}"
        if self.in_registers:
            a = "{" + ", ".join(f"%{self.count + i}" for i in range(4)) + "}"
        modifiers = [] if self.d == "s32" else [self.scale_a, self.scale_b]
        if BITS[self.a] == 16:
            modifiers += [self.trans_b] if self.in_registers else [self.trans_a, self.trans_b]
        ends = "".join(f", {modifier}" for modifier in modifiers)
        mnemonic = f"m64n{self.n}k{self.k}{'.satfinite' if self.saturates else ''}"
        letter = "f" if self.d == "f32" else "r"
        outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(self.count))
        inputs = [f'"r"(a[{i}])' for i in range(4)] if self.in_registers else ['"l"(a)']
        inputs = ", ".join([*inputs, '"l"(b)', '"r"(scale_d)'])
        return (
            f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{first + 1}, 0;"\n'
            f'" wgmma.mma_async.sync.aligned.{mnemonic}.{self.d}.{self.a}.{self.b}"\n'
            f'" {{{d}}}, {a}, %{first}, p{ends}; }}"\n : {outputs}\n : {inputs});'
        )


def type_pairs() -> list[tuple[str, str, str, bool]]:
    pairs = [("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")]
    pairs += [("f32", "tf32", "tf32")]
    pairs += itertools.product(("f16", "f32"), ("e4m3", "e5m2"), ("e4m3", "e5m2"))
    pairs += itertools.product(("s32",), ("s8", "u8"), ("s8", "u8"))
    return [(*pair, end) for pair in pairs for end in ((False, True)[: 1 + (pair[0] == "s32")])]


TYPES = [
    Product(16, d, a, b, registers, saturates=end)
    for d, a, b, end in type_pairs()
    for registers in (False, True)
]
WIDTHS = [Product(n, "f32", "f16", "f16") for n in range(8, 257, 8)]
WIDTHS += [Product(n, "s32", "s8", "u8") for n in (8, 24, 96, 256)]
WIDTHS += [Product(n, "f16", "e4m3", "e5m2") for n in (24, 128, 256)]
TRANSPOSED = [
    Product(n, "f32", kind, kind, trans_a=a, trans_b=b)
    for n, kind in ((160, "f16"), (24, "bf16"))
    for a, b in ((0, 1), (1, 0), (1, 1))
]
TRANSPOSED += [
    Product(n, "f32", kind, kind, True, trans_b=1) for n, kind in ((72, "f16"), (8, "bf16"))
]
SCALED = [
    Product(8, d, kind, kind, registers, a, b)
    for d, kind in (("f16", "f16"), ("f32", "bf16"), ("f32", "tf32"), ("f32", "e4m3"))
    for registers, a, b in ((False, -1, 1), (False, 1, -1), (False, -1, -1), (True, -1, 1))
]
FLOATS = [it for it in [*TYPES, *SCALED] if it.d != "s32"]
ALL = list(dict.fromkeys([*TYPES, *WIDTHS, *TRANSPOSED, *SCALED]))
PAIR = Product(64, "f32", "f16", "f16")  # of the kernels in REST

START = """
#include <stdint.h>

// The address of shared memory as a descriptor has it, at a multiple of 1 KB.
__device__ long long start_of(const void* p) {
    return (static_cast<long long>(__cvta_generic_to_shared(p)) & 0x3ffff) >> 4;
}
__device__ char* rounded_up(char* p) {
    return p + (1024 - __cvta_generic_to_shared(p) % 1024) % 1024;
}
__device__ void copy(const int* from, char* to, int words) {
    for (int i = threadIdx.x; i < words; i += 128) reinterpret_cast<int*>(to)[i] = from[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int prior>
__device__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(prior) : "memory");
}

// steps: descriptors of A and of B, without the start of the memory. registers: of A, if there.
template <class It>
__global__ void multiply(const int* image, int words, const long long* steps, int count,
                         int accumulates, const int* registers, int* D) {
    extern __shared__ char dynamic[];
    char* const memory = rounded_up(dynamic);
    copy(image, memory, words);
    const long long start = start_of(memory);
    typename It::Type d[It::count];
    auto* const c = reinterpret_cast<typename It::Type*>(D) + threadIdx.x * It::count;
    for (int i = 0; i < It::count; i++) d[i] = c[i];
    for (int step = 0; step < count; step++) {
        const int* a = registers + (step * 128 + threadIdx.x) * 4;
        fence();
        const long long* const mine = steps + 2 * step;
        It::product(d, a, start + mine[0], start + mine[1], accumulates || step);
        commit();
        wait<0>();
    }
    for (int i = 0; i < It::count; i++) c[i] = d[i];
}

template <class It>
void launch(const int* image, int words, const long long* steps, int count, int accumulates,
            const int* registers, int* D) {
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute(multiply<It>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    multiply<It><<<1, 128, bytes>>>(image, words, steps, count, accumulates, registers, D);
}
"""

# Tiles, a block each: A of 2048 bytes and B of 512 without a swizzle, and A once more in registers.
TILES = """
template <class It>
__global__ void multiply_tiles(const int* images, const int* registers, int* D) {
    __shared__ alignas(128) char memory[2560];
    copy(images + blockIdx.x * 640, memory, 640);
    const long long start = start_of(memory) | 128ll >> 4 << 32;
    const long long at = blockIdx.x * 128ll + threadIdx.x;
    typename It::Type d[It::count];
    auto* const c = reinterpret_cast<typename It::Type*>(D) + at * It::count;
    for (int i = 0; i < It::count; i++) d[i] = c[i];
    fence();
    It::product(d, registers + at * 4, start | 1024ll >> 4 << 16,
                start + (2048 >> 4) | 256ll >> 4 << 16, 1);
    commit();
    wait<0>();
    for (int i = 0; i < It::count; i++) c[i] = d[i];
}
"""


def tiles_of(it: Product) -> str:
    return f"""
extern "C" void {it.name}_tiles(const int* images, const int* registers, int* D, int count) {{
    multiply_tiles<{it.name}_product><<<count, 128>>>(images, registers, D);
}}"""


PARAMETERS = """(const int* image, int words, const long long* steps, int count, int accumulates,
const int* registers, int* D)"""


def source_of(it: Product) -> str:
    given = "{registers[0], registers[1], registers[2], registers[3]}"
    return f"""
struct {it.name}_product {{
    using Type = {it.of_d};
    enum {{ count = {it.count} }};
    static __device__ void product(Type (&d)[count], const int* registers, long long descriptor,
                                   long long b, int scale_d) {{
        {f"const int a[] = {given}" if it.in_registers else "const long long a = descriptor"};
        {it.statement()}
    }}
}};
extern "C" void {it.name}{PARAMETERS} {{
    launch<{it.name}_product>(image, words, steps, count, accumulates, registers, D);
}}"""


REST = f"""
using Pair = {PAIR.name}_product;

// Two groups in flight, one accumulator each. A kernel that peeks tells what the second has before
// it is waited for: on a GPU anything.
template <bool peeks>
__global__ void groups_kernel(const int* image, int words, const long long* steps, float* D) {{
    extern __shared__ char dynamic[];
    char* const memory = rounded_up(dynamic);
    copy(image, memory, words);
    const long long start = start_of(memory);
    float c[Pair::count], d[Pair::count];
    for (int i = 0; i < Pair::count; i++) c[i] = d[i] = 0;
    fence();
    Pair::product(c, nullptr, start + steps[0], start + steps[1], 1);
    Pair::product(c, nullptr, start + steps[2], start + steps[3], 1);
    commit();
    Pair::product(d, nullptr, start + steps[4], start + steps[5], 1);
    commit();
    wait<1>();
    float* const mine = D + threadIdx.x * Pair::count;
    constexpr int all = 128 * Pair::count;
    for (int i = 0; i < Pair::count; i++) mine[i] = c[i];
    if (peeks)
        for (int i = 0; i < Pair::count; i++) mine[2 * all + i] = d[i];
    wait<0>();
    for (int i = 0; i < Pair::count; i++) mine[all + i] = d[i];
}}
extern "C" void groups(const int* image, int words, const long long* steps, float* D) {{
    groups_kernel<false><<<1, 128, words * 4 + 1024>>>(image, words, steps, D);
}}
extern "C" void groups_peeked(const int* image, int words, const long long* steps, float* D) {{
    groups_kernel<true><<<1, 128, words * 4 + 1024>>>(image, words, steps, D);
}}

// A and B in shared memory of either kind.
__global__ void places_kernel(const int* a, const int* b, int words, const long long* steps,
                              int count, int a_is_dynamic, int b_is_dynamic, float* D) {{
    extern __shared__ char dynamic[];
    __shared__ alignas(1024) char fixed_a[8192], fixed_b[8192];
    char* const memory_of_a = a_is_dynamic ? rounded_up(dynamic) : fixed_a;
    char* const memory_of_b =
        !b_is_dynamic ? fixed_b : rounded_up(dynamic) + (a_is_dynamic ? words * 4 : 0);
    copy(a, memory_of_a, words);
    copy(b, memory_of_b, words);
    float d[Pair::count];
    fence();
    for (int step = 0; step < count; step++)
        Pair::product(d, nullptr, start_of(memory_of_a) + steps[2 * step],
                      start_of(memory_of_b) + steps[2 * step + 1], step);
    commit();
    wait<0>();
    for (int i = 0; i < Pair::count; i++) D[threadIdx.x * Pair::count + i] = d[i];
}}
extern "C" void places(const int* a, const int* b, int words, const long long* steps, int count,
                       int a_is_dynamic, int b_is_dynamic, float* D) {{
    const int parts = a_is_dynamic + b_is_dynamic;
    places_kernel<<<1, 128, parts ? parts * words * 4 + 1024 : 0>>>(
        a, b, words, steps, count, a_is_dynamic, b_is_dynamic, D);
}}

// Overwrites shared memory before it waits.
__global__ void overwrites_kernel(const int* image, const int* later, int words,
                                  const long long* steps, float* D) {{
    extern __shared__ char dynamic[];
    char* const memory = rounded_up(dynamic);
    copy(image, memory, words);
    float d[Pair::count];
    fence();
    Pair::product(d, nullptr, start_of(memory) + steps[0], start_of(memory) + steps[1], 0);
    commit();
    copy(later, memory, words);
    wait<0>();
    for (int i = 0; i < Pair::count; i++) D[threadIdx.x * Pair::count + i] = d[i];
}}
extern "C" void overwrites(const int* image, const int* later, int words, const long long* steps,
                           float* D) {{
    overwrites_kernel<<<1, 128, words * 4 + 1024>>>(image, later, words, steps, D);
}}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("wgmma") / "wgmma.cu"
    parts = [START, *map(source_of, ALL), REST, TILES, *map(tiles_of, FLOATS)]
    path.write_text("\n".join(parts))
    return path


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    if request.param == "cuda" and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a GPU of compute capability 9")
    return request.param


def load(path, target: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
        return jitload.load(str(path), name="test_ptx_wgmma", target=target)


@pytest.fixture(scope="module")
def library(path, target):
    return load(path, target)


@pytest.fixture(scope="module")
def simulated(path):
    """What a GPU need not do: what is asynchronous happens as late as it may."""
    return load(path, "cpu")


# ---- Where a matrix lies in shared memory


class Layout(NamedTuple):
    """How rows of 32 bytes for each step lie, or their transpose.

    swizzle: bytes of a line: 0, 32, 64 or 128.
    gap: bytes more than need be between what a descriptor has an offset for.
    """

    swizzle: int
    is_transposed: bool = False
    gap: int = 0

    @property
    def alignment(self) -> int:
        """Bytes of an atom of 8 lines; of a core matrix where nothing is swizzled."""
        return 8 * (self.swizzle or 16)

    def offsets(self, rows: int, steps: int) -> tuple[int, int, int]:
        """The leading and the stride offset of a descriptor, and the bytes of the whole matrix."""
        between = self.alignment + self.gap
        if not self.swizzle:
            lines = rows // 8  # core matrices one after the other along m or n, then along k
            return lines * between, between, 2 * steps * lines * between
        if not self.is_transposed:
            columns = -(-32 * steps // self.swizzle)  # of atoms, of which each step is in one
            return 0, between, columns * (rows // 8) * between
        atoms = -(-rows * 2 // self.swizzle)
        # Atoms are 8 of k high; the leading offset is between those along m or n.
        return between, atoms * between, 2 * steps * atoms * between

    def places(self, rows: int, steps: int) -> torch.Tensor:
        """Of each 16 bytes, by row and unit of k, or by k and unit of a row."""
        leading, stride, _ = self.offsets(rows, steps)
        lines, units = (16 * steps, rows // 8) if self.is_transposed else (rows, 2 * steps)
        line, unit = torch.arange(lines)[:, None], torch.arange(units)[None, :]
        if not self.swizzle:
            if self.is_transposed:
                return line // 8 * leading + line % 8 * 16 + unit * stride
            return line // 8 * stride + line % 8 * 16 + unit * leading
        per = self.swizzle // 16
        next_atom = leading if self.is_transposed else rows // 8 * stride
        at = (
            line // 8 * stride + line % 8 * self.swizzle + unit // per * next_atom + unit % per * 16
        )
        return at ^ (at >> 7 & per - 1) << 4  # bits 4 to 6 with bits 7 to 9, for 128 bytes

    def descriptors(self, rows: int, steps: int, start: int) -> list[int]:
        """Of each step, for a matrix that begins `start` bytes on."""
        leading, stride, _ = self.offsets(rows, steps)
        code = {0: 0, 128: 1, 64: 2, 32: 3}[self.swizzle]
        found = []
        for step in range(steps):
            if not self.swizzle:
                at = 2 * step * leading
            elif self.is_transposed:
                at = 2 * step * stride
            else:
                at = 32 * step % self.swizzle + 32 * step // self.swizzle * (rows // 8) * stride
            bits = start + at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | code << 62
            found.append(bits - (1 << 64) if bits >> 63 else bits)
        return found


def put(image: torch.Tensor, start: int, matrix: torch.Tensor, layout: Layout, steps: int) -> None:
    """A matrix of rows by k, of any type."""
    rows = len(matrix)
    units = (matrix.t() if layout.is_transposed else matrix).contiguous().view(torch.uint8)
    places = start + layout.places(rows, steps)
    image[places[..., None] + torch.arange(16)] = units.view(*places.shape, 16)


def junk(size: int) -> torch.Tensor:
    """Bytes that are no small number in any type."""
    return torch.randint(0x71, 0x77, (size,), dtype=torch.uint8)


def prepared(a: torch.Tensor, b: torch.Tensor, of_a: Layout, of_b: Layout, steps: int):
    """An image of shared memory with A, given as m x k, and B, as n x k; descriptors of steps."""
    start = -(-of_a.offsets(len(a), steps)[2] // 1024) * 1024
    image = junk(start + -(-of_b.offsets(len(b), steps)[2] // 1024) * 1024)
    put(image, 0, a, of_a, steps)
    put(image, start, b, of_b, steps)
    descriptors = zip(
        of_a.descriptors(len(a), steps, 0), of_b.descriptors(len(b), steps, start), strict=True
    )
    return image.view(torch.int32), torch.tensor(list(descriptors), dtype=torch.int64)


# ---- Which thread has what in registers


def registers_of_a(a: torch.Tensor) -> torch.Tensor:
    """Of each step and thread the four words of A: groups of four lanes have a row and another."""
    words = a.contiguous().view(torch.uint8).view(64, -1).view(torch.int32)  # 8 for each step
    thread, r = torch.arange(128)[:, None], torch.arange(4)[None, :]
    row = thread // 32 * 16 + thread % 32 // 4 + r % 2 * 8
    word = thread % 4 + r // 2 * 4
    return torch.stack([words[row, 8 * step + word] for step in range(words.shape[1] // 8)])


def accumulators(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each thread and each of its elements the row and the column."""
    thread, i = torch.arange(128)[:, None], torch.arange(n // 2)[None, :]
    row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
    return row, i // 4 * 8 + thread % 4 * 2 + i % 2


def multiplied(library, target, it: Product, a, b, c, layouts=None, accumulates=True):
    """The words of a b + c, m x n; a, b and c are tensors of words."""
    steps = a.shape[1] // it.k
    of_a, of_b = layouts or (Layout(0, bool(it.trans_a)), Layout(0, bool(it.trans_b)))
    image, descriptors = prepared(a, b, of_a, of_b, steps)
    rows, columns = accumulators(it.n)
    d = c[rows, columns].contiguous().view(torch.int32).to(target)
    given = registers_of_a(a) if it.in_registers else torch.zeros(4, dtype=torch.int32)
    if it.in_registers:
        descriptors[:, 0] = 0
    getattr(library, it.name)(
        image.to(target), len(image), descriptors.to(target), steps, int(accumulates),
        given.to(target), d,
    )  # fmt: skip
    result = torch.zeros_like(c)
    result[rows, columns] = d.cpu().view(c.dtype)
    return result


# ---- Small integers, which are exact


def integers(rows: int, columns: int, kind: str, most: int = 3) -> torch.Tensor:
    least = 0 if kind == "u8" else -most
    return torch.randint(least, most + 1, (rows, columns)).to(TORCH[kind])


def check_integers(library, target, it: Product, steps: int, layouts=None, accumulates=True):
    torch.manual_seed(it.n + steps)
    a, b = integers(64, it.k * steps, it.a), integers(it.n, it.k * steps, it.b)
    c = integers(64, it.n, it.d, 100)
    expected = it.scale_a * it.scale_b * (a.double() @ b.double().t())
    if accumulates:
        expected += c.double()
    got = multiplied(library, target, it, a, b, c, layouts, accumulates)
    assert torch.equal(got.double(), expected)


SWIZZLES = (0, 32, 64, 128)


@pytest.mark.parametrize("it", WIDTHS, ids=lambda it: it.name)
def test_every_width(library, target, it):
    check_integers(library, target, it, 1, (Layout(128), Layout(128)))


@pytest.mark.parametrize("it", TYPES, ids=lambda it: it.name)
def test_every_type_in_every_swizzle(library, target, it):
    for swizzle, accumulates in zip(SWIZZLES, (True, False, True, False), strict=True):
        layouts = Layout(swizzle, gap=1024), Layout(swizzle)
        check_integers(library, target, it, max(swizzle // 32, 1), layouts, accumulates)


@pytest.mark.parametrize("of_b", SWIZZLES)
@pytest.mark.parametrize("of_a", SWIZZLES)
def test_a_and_b_are_swizzled_each_in_its_way_over_many_steps(library, target, of_a, of_b):
    layouts = Layout(of_a, gap=1024 if of_a else 48), Layout(of_b, gap=2048 if of_b else 16)
    check_integers(library, target, Product(24, "f32", "f16", "f16"), 6, layouts)


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("it", TRANSPOSED, ids=lambda it: it.name)
def test_transposed_matrices_in_every_swizzle(library, target, it, swizzle):
    gap = 1024 if swizzle else 16
    of_a, of_b = (Layout(swizzle, bool(trans), gap) for trans in (it.trans_a, it.trans_b))
    check_integers(library, target, it, 3, (of_a, of_b))


@pytest.mark.parametrize("it", SCALED, ids=lambda it: it.name)
def test_negated_factors(library, target, it):
    check_integers(library, target, it, 2)


# ---- Bits


def tensor_of(words: list[int], bits: int) -> torch.Tensor:
    kind = {8: torch.int8, 16: torch.int16, 32: torch.int32}[bits]
    return torch.tensor([w - (1 << bits) if w >> bits - 1 else w for w in words], dtype=kind)


@pytest.mark.parametrize("it", FLOATS, ids=lambda it: it.name)
def test_floats_have_the_hardwares_bits(library, target, it):
    rng = random.Random(it.name)
    width = 16 if it.d == "f16" else 32
    for kind in KINDS:
        a = [random_word(rng, it.a, kind) for _ in range(64 * it.k)]
        b = [random_word(rng, it.b, kind) for _ in range(it.n * it.k)]
        c = [random_word(rng, it.d, kind) for _ in range(64 * it.n)]
        got = multiplied(
            library, target, it,
            tensor_of(a, BITS[it.a]).view(64, -1), tensor_of(b, BITS[it.b]).view(it.n, -1),
            tensor_of(c, width).view(64, -1),
        )  # fmt: skip
        flipped = (1 << BITS[it.a] - 1) if it.scale_a * it.scale_b < 0 else 0
        kept, result = (13, 13) if BITS[it.a] == 8 else (25, 23)
        for i in rng.sample(range(64), 3):
            row = [word ^ flipped for word in a[i * it.k : (i + 1) * it.k]]
            for j in range(it.n):
                column = b[j * it.k : (j + 1) * it.k]
                types = (it.a, it.b, it.d)
                expected = summed(row, column, c[i * it.n + j], types, kept, result)
                assert hex(int(got[i, j]) & (1 << width) - 1) == hex(expected), (kind, i, j)


@pytest.mark.parametrize("it", [it for it in TYPES if it.d == "s32"], ids=lambda it: it.name)
def test_integers_wrap_or_saturate(library, target, it):
    torch.manual_seed(it.n)
    a, b = (torch.randint(0, 256, (rows, 32), dtype=torch.uint8) for rows in (64, it.n))
    near = (1 << 31) - 1 - torch.randint(0, 200_000, (64, it.n))
    c = near * (torch.randint(0, 2, near.shape) * 2 - 1)
    got = multiplied(library, target, it, a, b, c.int())
    exact = a.view(TORCH[it.a]).long() @ b.view(TORCH[it.b]).long().t() + c
    limits = torch.iinfo(torch.int32)
    assert int((exact != exact.int()).sum()) > 20
    expected = exact.clamp(limits.min, limits.max) if it.saturates else exact
    assert torch.equal(got, expected.int())


@pytest.mark.skipif(TARGETS == ["cpu"], reason="needs a GPU to compare with")
@pytest.mark.parametrize("it", FLOATS, ids=lambda it: it.name)
def test_a_hundred_thousand_tiles_have_the_same_bits_on_both(path, it, record_property):
    generator, unequal, tiles = torch.Generator().manual_seed(7), 0, 10_000
    for _ in range(10):
        a = random_words((tiles, 128, 4), it.a, generator)
        b = random_words((tiles, 32, 4), it.b, generator)
        d = random_words((tiles, 128, it.count), it.d, generator)
        images = torch.cat([a, b], 1).contiguous()
        on_both = []
        for target in TARGETS:
            device = "cuda" if target == "cuda" else "cpu"
            result = d.to(device, copy=True)
            function = getattr(load(path, target), f"{it.name}_tiles")
            function(images.to(device), a.to(device), result, tiles)
            on_both.append(result.cpu())
        unequal += int((on_both[0] != on_both[1]).sum())
    record_property("unequal", unequal)
    assert unequal == 0


# ---- Groups, and where shared memory is


def pair(steps: int):
    """A and B of PAIR, and an image of them and its descriptors."""
    a, b = integers(64, 16 * steps, "f16"), integers(PAIR.n, 16 * steps, "f16")
    return a.double(), b.double(), *prepared(a, b, Layout(128), Layout(128), steps)


def as_matrix(d: torch.Tensor) -> torch.Tensor:
    rows, columns = accumulators(PAIR.n)
    result = torch.zeros(64, PAIR.n, dtype=torch.float64)
    result[rows, columns] = d.cpu().double().view(128, -1)
    return result


def results(target: str, count: int = 1) -> torch.Tensor:
    return torch.zeros(count, 128, PAIR.count, device=target)


def test_a_group_is_waited_for_while_another_is_in_flight(library, target):
    a, b, image, descriptors = pair(3)
    d = results(target, 2)
    library.groups(image.to(target), len(image), descriptors.to(target), d)
    assert torch.equal(as_matrix(d[0]), a[:, :32] @ b[:, :32].t())
    assert torch.equal(as_matrix(d[1]), a[:, 32:] @ b[:, 32:].t())


def test_accumulators_are_not_visible_before_they_are_waited_for(simulated):
    a, b, image, descriptors = pair(3)
    d = results("cpu", 3) + 7
    simulated.groups_peeked(image, len(image), descriptors, d)
    assert torch.equal(as_matrix(d[0]), a[:, :32] @ b[:, :32].t())
    assert torch.equal(as_matrix(d[1]), a[:, 32:] @ b[:, 32:].t())
    assert not d[2].any()


def test_shared_memory_that_is_overwritten_too_early_gives_the_product_of_the_new(simulated):
    _, _, image, descriptors = pair(1)
    a, b, later, _ = pair(1)
    d = results("cpu")
    simulated.overwrites(image, later, len(image), descriptors, d)
    assert torch.equal(as_matrix(d), a @ b.t())


@pytest.mark.parametrize("b_is_dynamic", [False, True])
@pytest.mark.parametrize("a_is_dynamic", [False, True])
def test_shared_memory_of_either_kind(library, target, a_is_dynamic, b_is_dynamic):
    a, b, image, descriptors = pair(4)
    descriptors[:, 1] -= 8192 >> 4  # B has a memory of its own here
    halves = [half.contiguous().to(target) for half in image.view(2, 2048)]
    d = results(target)
    library.places(*halves, 2048, descriptors.to(target), 4, a_is_dynamic, b_is_dynamic, d)
    assert torch.equal(as_matrix(d), a @ b.t())
