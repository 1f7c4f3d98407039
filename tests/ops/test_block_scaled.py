"""quantize_mxfp8 and quantize_nvfp4, bit for bit, and matmul_block_scaled."""

import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import bits_of
from op_cases import DEVICE, in_pairs, module_of, no_findings
from torch import Tensor

import jitload
import reference
from docs.programs.blackwell_ladder import RUNGS
from toolchain import machine, resources

NAMES = ("quantize_mxfp8", "quantize_nvfp4")
VERSIONS = ("naive", "vector")
BLOCKS = {"quantize_mxfp8": 32, "quantize_nvfp4": 16}
each_op = pytest.mark.parametrize("name", NAMES)
each_version = pytest.mark.parametrize("version", VERSIONS)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
matmul_block_scaled = module_of("matmul_block_scaled").matmul_block_scaled


def drawn(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, device=DEVICE, generator=generator).mul_(3).to(dtype)


def quantized(name: str, x: Tensor, **given: object) -> tuple[Tensor, ...]:
    return getattr(module_of(name), name)(x, **given)


def check(name: str, x: Tensor, version: str, *scale: Tensor) -> tuple[Tensor, ...]:
    """Every output has the bits of the reference, but for the sign and digits of a NaN."""
    got = quantized(name, x, version=version, **dict(zip(["scale"], scale, strict=False)))
    want = getattr(reference, name)(x, *scale)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        assert torch.equal(one_nan(g), one_nan(w))
    return got


def one_nan(t: Tensor) -> Tensor:
    """The bytes, those of a NaN in float8_e4m3fn without their sign."""
    if t.dtype != torch.float8_e4m3fn:
        return bits_of(t)
    return bits_of(t).masked_fill(bits_of(t) & 0x7F == 0x7F, 0x7F)


def pairs(name: str, rows: int, units: int, cols: int, **given: object) -> dict[str, Tensor]:
    """Arguments of matmul_block_scaled."""
    x = quantized(name, drawn((rows, cols), **given))
    w = quantized(name, drawn((units, cols), seed=1, **given))
    names = ("", "_scales", "_scale")
    return {p + n: t for p, ts in (("x", x), ("w", w)) for n, t in zip(names, ts, strict=False)}


SHAPES = [(130, 96), (1, 32), (5, 352), (2, 3, 64), (64,)]


@in_pairs(version=VERSIONS, name=NAMES, dtype=DTYPES, shape=SHAPES)
def test_shapes(version: str, name: str, dtype: torch.dtype, shape: tuple[int, ...]):
    check(name, drawn(shape, dtype), version)


@each_op
@each_version
@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0)], ids=str)
def test_empty(version: str, name: str, shape: tuple[int, int]):
    check(name, drawn(shape), version)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@each_op
@each_version
def test_any_shape(version: str, name: str, data: st.DataObject):
    draw = data.draw
    shape = draw(st.integers(0, 140)), draw(st.integers(0, 9)) * BLOCKS[name]
    dtype = draw(st.sampled_from(DTYPES))
    check(name, drawn(shape, dtype) * 10.0 ** draw(st.integers(-6, 4)), version)


@each_op
@each_version
def test_what_is_not_finite_and_what_is_nearly_nothing(version: str, name: str):
    """Each in one block of a row, also with a scale of the tensor that knows nothing of it."""
    odd = [torch.nan, -torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-45, 1e-39, 2.0**-126, 3e38]
    x = drawn((len(odd), 64), torch.float32)
    for row, value in enumerate(odd):
        x[row, :32] = 0
        x[row, 5] = value
    check(name, x, version)
    if name == "quantize_nvfp4":
        for scale in (1.0, 1e-30, 2.0**-126, 1e30):
            check(name, x, version, torch.tensor(scale, device=DEVICE))
    q, scales, *scale = quantized(name, x, version=version)
    if not scale:
        numbers = reference.dequantize_blocks(q, scales)
        assert numbers[:4, :32].isnan().all()
        assert numbers[4:, :].isfinite().all()
        assert numbers[:, 32:].isfinite().all()
    tiny = x[4:].mul(1e-42)
    check(name, tiny, version)


def test_scales_are_the_least_power_of_two_that_cuts_nothing_off():
    """In exact arithmetic; floats between 448 and the next one of a byte are the odd ones."""
    digits = torch.tensor([1.0, 1.5, 1.75, 1.75 + 2**-23, 1.999])
    sizes = digits * torch.arange(-110, 127, 9)[:, None].float().exp2()
    x = torch.zeros(sizes.numel(), 32)
    x[:, 3] = -sizes.flatten()
    q, scales = quantized("quantize_mxfp8", x.to(DEVICE))
    powers = reference.dequantize_blocks(torch.ones_like(q.float()).to(q.dtype), scales)[:, 0]
    for size, power in zip(sizes.flatten().tolist(), powers.tolist(), strict=True):
        assert Fraction(power) * 448 >= Fraction(size) > Fraction(power) * 224


@each_version
def test_every_rounding_to_four_bits(version: str):
    """With scales of 1: ties between neighbours, floats beside them, and what is cut off."""
    sizes = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])
    ties = (sizes[1:] + sizes[:-1]) / 2
    near = torch.cat((sizes, ties, ties.nextafter(ties * 0), ties.nextafter(ties * 2)))
    x = torch.cat((near, -near, torch.full((2,), 1e-40)))
    x = torch.cat((x.view(-1, 15), torch.full((len(x) // 15, 1), 6.0)), 1).to(DEVICE)
    q, scales, _ = check("quantize_nvfp4", x, version, torch.ones((), device=DEVICE))
    numbers = reference.dequantize_blocks(q, scales).cpu()
    distance = (numbers.abs()[..., None] - sizes).abs().argmin(-1)
    assert torch.equal(sizes[distance].double(), numbers.abs())
    nearest = (x.cpu().abs()[..., None] - sizes).abs().amin(-1)
    assert torch.equal((numbers.abs() - x.cpu().abs()).abs().float(), nearest)


def test_conversions_by_hand_and_by_the_instruction():
    here = Path(__file__).parent
    include = str(Path(reference.__file__).parent / "kernels/include")
    kernel = jitload.load(here / "kernels/float4.cu", include=[include])
    x = torch.arange(2**16, device=DEVICE, dtype=torch.int32).mul(2**16).view(torch.float32)
    x = torch.cat((x, x.view(torch.int32).add(1).view(torch.float32)))
    x = x[~x.isnan()]
    by_hand, by_instruction = torch.empty(2, x.numel(), dtype=torch.uint8, device=DEVICE)
    kernel.float_to_float4(x, by_hand, by_instruction, x.numel())
    assert torch.equal(by_hand, by_instruction)


def test_where_scales_lie():
    """As cuBLAS documents them: 128 x 4 tiles, of which 32 rows lie 16 bytes apart."""
    rows, blocks = 150, 6
    scales = torch.randint(1, 256, (rows, blocks), dtype=torch.uint8)
    got = reference.swizzle_scales(scales)
    assert got.shape == (2 * 2 * 512,)
    assert got.count_nonzero() == rows * blocks
    for row in range(rows):
        for block in range(blocks):
            tile = row // 128 * 2 + block // 4
            at = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
            assert got[at] == scales[row, block]


@each_op
@each_version
def test_strides_and_misaligned(version: str, name: str):
    x = drawn((40, 128))
    want = quantized(name, x, version=version)
    shifted = x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    for same in (shifted, x.mT.contiguous().mT):
        for got, wanted in zip(quantized(name, same, version=version), want, strict=True):
            assert torch.equal(bits_of(got), bits_of(wanted))


@each_op
@each_version
def test_a_product(version: str, name: str):
    given = pairs(name, 37, 70, 352)
    truth = reference.matmul_block_scaled(**given)
    numbers = [
        reference.dequantize_blocks(given[n], given[n + "_scales"], given.get(n + "_scale"))
        for n in ("x", "w")
    ]
    y = matmul_block_scaled(**given, version=version)
    pytorchs = (numbers[0].bfloat16() @ numbers[1].bfloat16().mT).double()
    assert y.dtype == torch.bfloat16
    assert (y - truth).norm() <= 2 * (pytorchs - truth).norm()
    exact = reference.product(drawn((37, 352)).double(), drawn((70, 352), seed=1).double())
    limit = {"quantize_mxfp8": 0.04, "quantize_nvfp4": 0.15}[name]  # of numbers of so many bits
    assert (y - exact).norm() < limit * exact.norm()


@each_op
def test_shapes_and_strides_of_products(name: str):
    given = pairs(name, 9, 40, 96)
    want = matmul_block_scaled(**given)

    def twice(t: Tensor, dim: int) -> Tensor:
        """As bytes: PyTorch does not copy numbers of four bits."""
        return t.view(torch.uint8).repeat_interleave(2, dim).view(t.dtype)

    rows_apart = {n: twice(given[n], 0)[::2] for n in "xw"}
    apart = given | rows_apart | {"x_scales": twice(given["x_scales"], 0)[::2]}
    assert torch.equal(matmul_block_scaled(**apart), want)
    batch = given | {"x": given["x"].view(3, 3, -1)}
    assert torch.equal(matmul_block_scaled(**batch), want.view(3, 3, 40))
    turned = given | {"x": given["x"].view(torch.uint8).mT.contiguous().mT.view(given["x"].dtype)}
    if name == "quantize_mxfp8":
        assert torch.equal(matmul_block_scaled(**turned), want)
    else:
        with pytest.raises(RuntimeError, match="x has no rows of neighbouring bytes; wanted is a"):
            matmul_block_scaled(**turned)
    for rows, units, cols in ((0, 3, 32), (3, 0, 32), (3, 4, 0)):
        y = matmul_block_scaled(**pairs(name, rows, units, cols))
        assert torch.equal(y, y.new_zeros(rows, units))


@pytest.mark.skipif(DEVICE.type != "cpu", reason="only the simulator runs sm_100a everywhere")
@pytest.mark.parametrize(("name", "rung"), [*zip(NAMES, RUNGS[4:], strict=True)], ids=NAMES)
def test_tensor_memory_takes_what_is_quantized(name: str, rung):
    """Quantized here, multiplied with its scales by the rung; the product was not quantized."""
    x, w = drawn((256, 512)), drawn((128, 512), seed=1)
    operands = [quantized(name, t) for t in (x, w)]
    y = torch.full((256, 128), torch.nan)
    elements, scales, *scale = zip(*operands, strict=True)
    rung.load("cpu")(*elements, *scales, y, 256, 128, 512)
    for each in scale:
        y *= each[0] * each[1]
    truth = reference.matmul_block_scaled(*elements, *scales, *(s for each in scale for s in each))
    assert (y - truth).norm() <= 1e-6 * truth.norm()
    exact = x.double() @ w.double().mT
    limit = {"quantize_mxfp8": 0.04, "quantize_nvfp4": 0.15}[name]
    assert (y - exact).norm() < limit * exact.norm()


@pytest.mark.gpu
@pytest.mark.skipif(
    DEVICE.type != "cuda" or torch.cuda.get_device_capability()[0] < 10,
    reason="cuBLAS multiplies by scales of blocks from compute capability 10.0 on",
)
@each_op
def test_pytorch_takes_what_is_quantized(name: str):
    given = pairs(name, 256, 128, 512)
    scales = {"scale_a": given["x_scales"], "scale_b": given["w_scales"]}
    y = torch._scaled_mm(given["x"], given["w"].mT, **scales, out_dtype=torch.bfloat16)
    truth = reference.matmul_block_scaled(**{n: t for n, t in given.items() if n[1:] != "_scale"})
    assert (y - truth).norm() <= 0.01 * truth.norm()


@each_op
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 64).double(), "x is float64; wanted is float32, float16 or bfloat16"),
        (torch.zeros(3, 64).long(), "x is int64; wanted is"),
        (torch.tensor(1.0), r"x has no dimension; wanted is \[..., cols\]"),
        (
            torch.zeros(3, 72),
            "x has 72 columns; wanted is a multiple of (32|16), for (MXFP8|NVFP4)",
        ),
    ],
    ids=["double", "long", "scalar", "columns"],
)
def test_refused(name: str, x: Tensor, message: str):
    with pytest.raises(RuntimeError, match=message):
        quantized(name, x.to(DEVICE))


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (torch.ones(2), r"scale has shape \(2,\); wanted is \(\), one number for the tensor"),
        (torch.ones(1).half(), "scale is float16; wanted is float32"),
    ],
    ids=["shape", "type"],
)
def test_refused_scale(scale: Tensor, message: str):
    with pytest.raises(RuntimeError, match=message):
        quantized("quantize_nvfp4", drawn((3, 64)), scale=scale.to(DEVICE))


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), 1e-60, 1e39], ids=str)
def test_refused_number_as_scale(scale: float):
    message = rf"scale is {scale}; wanted is a number that is positive"
    with pytest.raises(ValueError, match=re.escape(message)):
        quantized("quantize_nvfp4", drawn((3, 64)), scale=scale)


@pytest.mark.parametrize("scale", [0.01, 3, 1e-40], ids=str)
def test_a_number_as_scale_is_a_tensor(scale: float):
    x = drawn((3, 64))
    got = quantized("quantize_nvfp4", x, scale=scale)
    for g, w in zip(got, check("quantize_nvfp4", x, "naive", got[2]), strict=True):
        assert torch.equal(bits_of(g), bits_of(w))
    assert got[2] == torch.tensor(scale, dtype=torch.float32)


@each_version
@pytest.mark.parametrize("scale", [0.0, -0.01, float("nan")], ids=str)
def test_tensor_as_scale_that_is_not_positive(scale: float, version: str):
    x, given = drawn((3, 64)), torch.tensor(scale, device=DEVICE)
    q, scales, _ = quantized("quantize_nvfp4", x, version=version, scale=given)
    if scale < 0:
        check("quantize_nvfp4", x, version, given)
        assert (scales.float() <= 0).all()
    else:
        assert not (q.view(torch.uint8) & 0x77).any()  # but for signs


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (NAMES[0], {"x": torch.zeros(3, 64)}, "x is float32; wanted is float8_e4m3fn or float4_"),
        (NAMES[0], {"w": torch.zeros(5, 64)}, "w is float32, but x is float8_e4m3fn; wanted is"),
        (NAMES[0], {"x_scales": torch.zeros(3, 2)}, "x_scales is float32; wanted is float8_e8m0"),
        (NAMES[1], {"x_scales": torch.zeros(3, 2)}, "x_scales is float32; wanted is float8_e4m3"),
        (NAMES[0], {"w_scales": torch.zeros(8).to(torch.float8_e8m0fnu)}, r"wanted is \(512,\)"),
        (NAMES[1], {"w_scale": torch.zeros(2)}, r"w_scale has shape \(2,\); wanted is \(\)"),
    ],
    ids=["x", "w", "e8m0", "e4m3", "tiles", "scale"],
)
def test_refused_products(name: str, changes: dict, message: str):
    given = pairs(name, 3, 5, 64) | {n: t.to(DEVICE) for n, t in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        matmul_block_scaled(**given)


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@each_op
@each_version
def test_checker(version: str, name: str):
    no_findings(quantized, name, drawn((140, 96)), version=version, traffic=False)
    given = pairs(name, 9, 40, 96)
    no_findings(matmul_block_scaled, **given, version=version, traffic=False)


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine")
@pytest.mark.parametrize("name", [*NAMES, "matmul_block_scaled"])
def test_compiles_for_gpus_without_spills(name: str, tmp_path: Path):
    for architecture in ("sm_90a", "sm_100a"):
        command = [machine.cuda_tool("nvcc"), f"-arch={architecture}", "-cubin", "-Xptxas=-v"]
        command += ["-std=c++17", "-DPLAYGROUND_CUDA=1", f"-I{jitload.KERNELS / 'include'}"]
        command += ["-o", tmp_path / "out.cubin", jitload.op_file(name, ".cu")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        used = resources.uses(done.stdout + done.stderr)
        assert used
        assert not [use for use in used if use.spilled or use.architecture != architecture]
