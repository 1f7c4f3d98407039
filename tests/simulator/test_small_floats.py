"""Floats of 6 and 4 bits and scales of 8: cuda_fp4.h, cuda_fp6.h, __nv_fp8_e8m0, and PTX's cvt.

The truth is a table of each type's values, searched for the nearest.
"""

from __future__ import annotations

import math

import pytest
import torch

import jitload

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
    text = "#include <cuda_fp4.h>\n" + "\n".join(map(kernels, TYPES)) + SCALES
    path.write_text(text)
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
