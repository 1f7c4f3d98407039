"""mma.sync with block scales: rows of A and columns of B count times powers of two.

Which lane has which scale is as in the PTX manual. All products of a result have one scale, so it
is to be that of C without it: what the literature has of how compute capability 12.0 rounds.
"""

from __future__ import annotations

import random
import struct

import pytest
import torch

import jitload
from tests.helpers.tensor_cores import random_word, summed
from tests.simulator.test_ptx_sparse import of_rows, packed, places_of_d
from tests.simulator.test_ptx_tensor_cores import float32, tensor

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
TYPES = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
SELECTORS = [(0, 0, 0, 0), (1, 1, 2, 3), (3, 0, 1, 1), (2, 1, 3, 2)]  # byte, lanes; byte, lane


def name_of(types: tuple[str, str], selectors: tuple[int, ...]) -> str:
    return "_".join(["scaled", *types, *map(str, selectors)])


def kernel(types: tuple[str, str], selectors: tuple[int, ...]) -> str:
    name, (byte_a, lane_a, byte_b, lane_b) = name_of(types, selectors), selectors
    ids = [f'"h"((short){value})' for value in (byte_a, lane_a, byte_b, lane_b)]
    return f"""
__global__ void {name}_kernel(const int* A, const int* B, const int* C, const int* S, int* D) {{
    const int* const a = A + threadIdx.x * 4;
    const int* const b = B + threadIdx.x * 2;
    const int* const scale = S + threadIdx.x * 2;
    int d[4];
    for (int i = 0; i < 4; i++) d[i] = C[threadIdx.x * 4 + i];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
                 ".f32.{types[0]}.{types[1]}.f32.ue8m0"
                 " {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}},"
                 " {{%10}}, {{%11, %12}}, {{%13}}, {{%14, %15}};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "r"(scale[0]), {ids[0]}, {ids[1]}, "r"(scale[1]), {ids[2]}, {ids[3]});
    for (int i = 0; i < 4; i++) D[threadIdx.x * 4 + i] = d[i];
}}
extern "C" void {name}(const int* A, const int* B, const int* C, const int* S, int* D) {{
    {name}_kernel<<<1, 32>>>(A, B, C, S, D);
}}"""


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    if request.param == "cuda" and torch.cuda.get_device_capability()[0] != 12:
        pytest.skip("needs a GPU of compute capability 12")
    return request.param


@pytest.fixture(scope="module")
def library(tmp_path_factory, target):
    path = tmp_path_factory.mktemp("scaled") / "scaled.cu"
    path.write_text("\n".join(kernel(types, it) for types in TYPES for it in SELECTORS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "12.0a")
        return jitload.load(str(path), name="test_block_scaled", target=target)


def float32_word(value: float) -> int:
    return struct.unpack("I", struct.pack("f", value))[0]


@pytest.mark.parametrize("selectors", SELECTORS, ids=str)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_rows_and_columns_have_scales(library, target, types, selectors):
    rng = random.Random(name_of(types, selectors))
    byte_a, lane_a, byte_b, lane_b = selectors
    rows = [[random_word(rng, types[0], "wide") for _ in range(32)] for _ in range(16)]
    columns = [[random_word(rng, types[1], "wide") for _ in range(32)] for _ in range(8)]
    c = [[random_word(rng, "f32", "near") for _ in range(8)] for _ in range(16)]
    scales = [[rng.getrandbits(32), rng.getrandbits(32)] for _ in range(32)]  # of lanes: A, B
    of_a, of_b = [0] * 16, [0] * 8
    for group in range(8):
        for half in range(2):
            of_a[group + 8 * half] = rng.randint(117, 137)
            word = scales[group * 4 + 2 * lane_a + half]
            word[0] = word[0] & ~(0xFF << 8 * byte_a) | of_a[group + 8 * half] << 8 * byte_a
        of_b[group] = 0xFF if group == 5 else rng.randint(117, 137)
        word = scales[group * 4 + lane_b]
        word[1] = word[1] & ~(0xFF << 8 * byte_b) | of_b[group] << 8 * byte_b
    given = [
        tensor([packed(of_rows(rows, 4, 2), 8)]),
        tensor([packed(of_rows(columns, 4, 1), 8)]),
        tensor([packed([[c[i][j] for i, j in lane] for lane in places_of_d()], 32)]),
        tensor([scales]),
    ]
    result = torch.zeros(1, 32, 4, dtype=torch.int32).to(target)
    getattr(library, name_of(types, selectors))(*(x.to(target) for x in given), result)
    for lane, places in enumerate(places_of_d()):
        for n, (i, j) in enumerate(places):
            got = int(result[0, lane, n]) & 0xFFFFFFFF
            power = 2.0 ** (of_a[i] + of_b[j] - 254)
            start = float32_word(float32(c[i][j]) / power)
            word = summed(rows[i], columns[j], start, (*types, "f32"))
            want = 0x7FFFFFFF if j == 5 else float32_word(float32(word) * power)
            assert hex(got) == hex(want), (i, j)
