"""Floats of 6 and 4 bits and scales of 8: cuda_fp4.h, cuda_fp6.h, __nv_fp8_e8m0, and PTX's cvt.

The truth is a table of each type's values, searched for the nearest.
"""

from __future__ import annotations

import ctypes
import math
import subprocess

import pytest
import torch
from simulated import SOURCES

import jitload
from toolchain import machine

# Bits of exponent and of fraction.
TYPES = {"e2m1": (2, 1), "e2m3": (2, 3), "e3m2": (3, 2)}


def kernels(name: str) -> str:
    bits = 1 + sum(TYPES[name])
    kind = f"__nv_fp{bits}_{name}"
    # A byte of PTX has no constraint of its own: it is a part of 16 bits.
    to_pair = f"cvt.rn.satfinite.{name}x2.f32 %0, %1, %2;"
    from_pair = f"cvt.rn.f16x2.{name}x2 %0, %1;"
    if bits == 4:
        to_pair = f"{{ .reg .b8 t; cvt.rn.satfinite.{name}x2.f32 t, %1, %2; cvt.u16.u8 %0, t; }}"
        from_pair = f"{{ .reg .b8 t; cvt.u8.u16 t, %1; cvt.rn.f16x2.{name}x2 %0, t; }}"
    return f"""
__device__ unsigned char {name}_cut(float x) {{
    return __nv_cvt_float_to_fp{bits}(x, __NV_{name.upper()}, cudaRoundZero);
}}
__global__ void {name}_kernel(const float* x, unsigned char* codes, unsigned char* cut, float* back,
                              unsigned short* pairs, int* halves, int n) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    codes[i] = {kind}(x[i]).__x;
    cut[i] = {name}_cut(x[i]);
    {kind} again;
    again.__x = codes[i];
    back[i] = float(again);
    asm("{to_pair}" : "=h"(pairs[i]) : "f"(x[i]), "f"(x[n - 1 - i]));
    asm("{from_pair}" : "=r"(halves[i]) : "h"(pairs[i]));
}}
extern "C" void {name}(const float* x, unsigned char* codes, unsigned char* cut, float* back,
                       unsigned short* pairs, int* halves, int n) {{
    {name}_kernel<<<(n + 127) / 128, 128>>>(x, codes, cut, back, pairs, halves, n);
}}"""


SCALES = """
__global__ void scales_kernel(const float* x, unsigned char* up, unsigned char* cut, float* back,
                              unsigned short* pairs, int* bfloats, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    up[i] = __nv_fp8_e8m0(x[i]).__x;
    cut[i] = __nv_cvt_float_to_e8m0(x[i], __NV_NOSAT, cudaRoundZero);
    __nv_fp8_e8m0 again;
    again.__x = up[i];
    back[i] = float(again);
    asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(pairs[i]) : "f"(x[i]), "f"(x[n - 1 - i]));
    asm("cvt.rn.bf16x2.ue8m0x2 %0, %1;" : "=r"(bfloats[i]) : "h"(pairs[i]));
}
extern "C" void scales(const float* x, unsigned char* up, unsigned char* cut, float* back,
                       unsigned short* pairs, int* bfloats, int n) {
    scales_kernel<<<(n + 127) / 128, 128>>>(x, up, cut, back, pairs, bfloats, n);
}"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("small_floats") / "small_floats.cu"
    path.write_text("\n".join(["#include <cuda_fp4.h>", *map(kernels, TYPES), SCALES, STOCHASTIC]))
    return jitload.load(str(path), name="test_small_floats", target="cpu")


def values_of(name: str) -> list[float]:
    """Of the codes without a sign, in their order."""
    exponent, fraction = TYPES[name]
    bias = 2 ** (exponent - 1) - 1
    return [
        math.ldexp((code & 2**fraction - 1) + (2**fraction if code >> fraction else 0),
                   max(code >> fraction, 1) - bias - fraction)
        for code in range(2 ** (exponent + fraction))
    ]  # fmt: skip


def numbers() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(2000, generator=generator)
    some *= torch.randint(-12, 12, (2000,), generator=generator).float().exp2()
    ties = torch.arange(-40, 40) / 16
    powers = torch.arange(-149.0, 128).double().exp2().float()
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 3.4028234e38, -1e-45])
    return torch.cat([some, ties, powers, -powers, 1.5 * powers[30:-1], special])


def run(library, name: str, x: torch.Tensor) -> list[torch.Tensor]:
    n = len(x)
    outputs = [torch.zeros(n, dtype=dtype) for dtype in (torch.uint8, torch.uint8, torch.float)]
    outputs += [torch.zeros(n, dtype=dtype) for dtype in (torch.uint16, torch.int32)]
    getattr(library, name)(x, *outputs, n)
    return outputs


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_6_and_4_bits(library, name):
    x = numbers()
    codes, cut, back, pairs, halves = run(library, name, x)
    table = values_of(name)
    bits = 1 + sum(TYPES[name])
    wanted, wanted_cut = [], []
    for number in x.double().tolist():
        sign = (1 << bits - 1) * (math.copysign(1, number) < 0)
        size = abs(number)
        if math.isnan(number):
            sign, size = 0, math.inf
        near = min(range(len(table)), key=lambda c: (abs(table[c] - min(size, 1e9)), c & 1))
        wanted.append(sign | near)
        wanted_cut.append(sign | max(c for c, value in enumerate(table) if value <= size))
    assert codes.tolist() == wanted
    assert cut.tolist() == wanted_cut
    signed = torch.tensor(table + [-value for value in table])
    assert torch.equal(back, signed[codes.long()])
    apart = 4 if bits == 4 else 8
    together = codes.int() << apart | codes.flip(0).int()
    assert torch.equal(pairs.int() & 0xFFFF, together)
    low = signed[together.long() & (1 << bits) - 1].half().view(torch.int16).int() & 0xFFFF
    high = signed[together.long() >> apart].half().view(torch.int16).int()
    assert torch.equal(halves, high << 16 | low)


def test_scales_are_powers_of_two(library):
    x = numbers()
    up, cut, back, pairs, bfloats = run(library, "scales", x)
    wanted, wanted_cut = [], []
    for number in x.double().tolist():
        if math.isnan(number):
            wanted.append(255)
            wanted_cut.append(255)
        elif math.isinf(number):
            wanted.append(254)
            wanted_cut.append(255)
        else:
            part, exponent = math.frexp(abs(number)) if number else (0.5, -200)
            wanted.append(min(max(exponent - (part == 0.5) + 127, 0), 254))
            wanted_cut.append(max(exponent - 1 + 127, 0))
    assert up.tolist() == wanted
    assert cut.tolist() == wanted_cut
    scale = up.view(torch.float8_e8m0fnu).float()
    assert torch.equal(back.nan_to_num(-1), scale.nan_to_num(-1))
    assert torch.equal(pairs.int() & 0xFFFF, up.int() << 8 | up.flip(0).int())
    both = torch.stack([scale.flip(0), scale], -1).bfloat16().view(torch.int16).int() & 0xFFFF
    wanted_bits = both[:, 1] << 16 | both[:, 0]
    assert torch.equal(bfloats[scale.isfinite() & scale.flip(0).isfinite()],
                       wanted_bits[scale.isfinite() & scale.flip(0).isfinite()])  # fmt: skip


# ---- CUDA's own headers, whose code for the host is the truth


@pytest.mark.skipif(machine.cuda_home() is None, reason="needs CUDA's headers")
def test_every_conversion_is_that_of_cudas_headers(tmp_path):
    text = (SOURCES / "small_floats.h").read_text()
    ours, theirs = tmp_path / "small_floats.cu", tmp_path / "theirs.cpp"
    ours.write_text(text)
    theirs.write_text(text)
    include = machine.cuda_home() / "include"
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{include}", theirs]
    subprocess.run([*command, "-o", tmp_path / "theirs.so"], check=True)
    digests = torch.zeros(2, 1000, dtype=torch.int64)
    count = ctypes.CDLL(str(tmp_path / "theirs.so")).small_floats(
        ctypes.c_void_p(digests[0].data_ptr())
    )
    assert jitload.load(ours, target="cpu").small_floats(digests[1]) == count > 200
    different = (digests[0] != digests[1]).nonzero().flatten().tolist()
    assert different == []


# ---- cvt.rs

STOCHASTIC = """
__global__ void stochastic_kernel(const float* x, const int* random, int* four, int* relu,
                                  int* tiny, int* half, int* bfloat, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float a = x[4 * i], b = x[4 * i + 1], e = x[4 * i + 2], f = x[4 * i + 3];
    unsigned short of_4;
    asm("cvt.rs.satfinite.e4m3x4.f32 %0, {%1, %2, %3, %4}, %5;"
        : "=r"(four[i]) : "f"(a), "f"(b), "f"(e), "f"(f), "r"(random[i]));
    asm("cvt.rs.relu.satfinite.e3m2x4.f32 %0, {%1, %2, %3, %4}, %5;"
        : "=r"(relu[i]) : "f"(a), "f"(b), "f"(e), "f"(f), "r"(random[i]));
    asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%1, %2, %3, %4}, %5;"
        : "=h"(of_4) : "f"(a), "f"(b), "f"(e), "f"(f), "r"(random[i]));
    tiny[i] = of_4;
    asm("cvt.rs.satfinite.f16x2.f32 %0, %1, %2, %3;"
        : "=r"(half[i]) : "f"(a), "f"(b), "r"(random[i]));
    asm("cvt.rs.relu.bf16x2.f32 %0, %1, %2, %3;"
        : "=r"(bfloat[i]) : "f"(a), "f"(b), "r"(random[i]));
}
extern "C" void stochastic(const float* x, const int* random, int* four, int* relu, int* tiny,
                           int* half, int* bfloat, int n) {
    stochastic_kernel<<<(n + 127) / 128, 128>>>(x, random, four, relu, tiny, half, bfloat, n);
}
"""


def stochastically(x: float, part: float, exponents: int, fraction: int, greatest: float) -> float:
    """part: the random bits as a number from 0 up to 1."""
    least = 2 - 2 ** (exponents - 1)
    exponent = max(math.frexp(abs(x))[1] - 1, least) if x else least
    unit = math.ldexp(1.0, exponent - fraction)
    return math.copysign(min(math.floor(abs(x) / unit + part) * unit, greatest), x)


def test_stochastic_rounding_goes_by_the_carry(library):
    n = 2000
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 4, generator=generator) * 2.0 ** torch.randint(
        -20, 18, (n, 4), generator=generator
    )
    random = torch.randint(-(2**31), 2**31, (n,), generator=generator).to(torch.int32)
    four, relu, tiny, half, bfloat = torch.zeros(5, n, dtype=torch.int32)
    library.stochastic(x, random, four, relu, tiny, half, bfloat, n)
    codes = four.view(torch.uint8).view(n, 4).flip(1)
    as_fp8 = codes.view(torch.float8_e4m3fn).float()
    halves = half.view(torch.float16).view(n, 2).flip(1).double()
    bfloats = bfloat.view(torch.bfloat16).view(n, 2).flip(1).double()
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values += [-value for value in values]
    sixes = [
        0.0625 * i if i < 4 else 0.25 * 2.0 ** (i // 4 - 1) * (1 + i % 4 / 4) for i in range(32)
    ]
    for i in range(n):
        word = int(random[i]) & 0xFFFFFFFF
        high, low = word >> 16, word & 0xFFFF
        for j, number in enumerate(x[i].tolist()):
            of_8 = (high if j < 2 else low) / 2**16
            assert as_fp8[i, j] == stochastically(number, of_8, 4, 3, 448)
            code = int(relu[i]) >> 8 * (3 - j) & 0xFF
            assert sixes[code] == max(stochastically(number, of_8, 3, 2, 28), 0)
            of_4 = (word >> (24, 8, 16, 0)[j] & 0xFF) / 2**8
            code = int(tiny[i]) >> 4 * (3 - j) & 0xF
            assert values[code] == stochastically(number, of_4, 2, 1, 6)
            if j < 2:
                part = (high, low)[j]
                wanted = stochastically(number, (part & 0x1FFF) / 2**13, 5, 10, 65504)
                assert halves[i, j] == wanted
                wanted = stochastically(number, part / 2**16, 8, 7, math.inf)
                assert bfloats[i, j] == max(wanted, 0)
