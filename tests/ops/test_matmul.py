"""matmul's own: its kernels for 16-bit floats, fused ends, layouts, matrices in batches."""

import itertools
import os

import pytest
import torch
from jit_cases import output_of
from op_cases import DEVICE, Case, assert_close_to_pytorch, no_findings, outcome
from torch import Tensor

import lab
import reference
from kernels.matmul import ACTS, VERSIONS, kernel, matmul

OP = reference.OPS["matmul"]
BY_TENSOR_CORES = VERSIONS[VERSIONS.index("mma") :]
MARKED = [pytest.param(v, marks=[pytest.mark.slow] * (v != VERSIONS[-1])) for v in VERSIONS]
each_version = pytest.mark.parametrize("version", MARKED[VERSIONS.index("mma") :])
each_type = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def case(version: str, **options: object) -> Case:
    return Case(OP, version, options)


def inputs(case: Case, rows: int, units: int, cols: int, dtype: torch.dtype) -> dict[str, Tensor]:
    given = OP.inputs(rows, cols, dtype, DEVICE, without=case.options, units=units)
    given["w"] = given["w"] / cols**0.5
    return given


def judge(case: Case, *shape: int, dtype: torch.dtype = torch.bfloat16) -> None:
    assert_close_to_pytorch(case, inputs(case, *shape, dtype))


def transposed(t: Tensor) -> Tensor:
    return t.mT.contiguous().mT


# ---- shapes: tiles and their tails, more tiles than multiprocessors, more k than there are stages


@each_type
@each_version
@pytest.mark.parametrize(
    "shape", [(128, 256, 64), (200, 136, 72), (65, 520, 648), (1, 8, 8), (300, 40, 504)], ids=str
)
def test_tiles(version: str, shape: tuple[int, int, int], dtype: torch.dtype):
    judge(case(version, bias=None, residual=None), *shape, dtype=dtype)
    judge(case(version), *shape, dtype=dtype)


@pytest.mark.parametrize("act", [None, "gelu", "swiglu"])
@pytest.mark.parametrize("shape", [(130, 200, 72), (333, 328, 64), (71, 1096, 504)], ids=str)
def test_tiles_that_move_inside_at_the_edge(shape: tuple[int, int, int], act: str | None):
    options = {"act": act} if act else {}
    judge(case(VERSIONS[-1], bias=None, residual=None, **options), *shape)
    if act != "swiglu":
        judge(case(VERSIONS[-1], **options), *shape)


@each_version
@pytest.mark.parametrize("shape", [(130, 77, 64), (130, 72, 65), (9, 1, 7)], ids=str)
def test_rows_that_are_no_multiple_of_16_bytes(version: str, shape: tuple[int, int, int]):
    judge(case(version), *shape)


@each_type
@pytest.mark.parametrize("act", ["gelu", "swiglu"])
@pytest.mark.parametrize("shape", [(1, 68, 301), (13, 66, 550)], ids=str)
def test_few_rows_that_begin_anywhere(shape: tuple[int, int, int], act: str, dtype: torch.dtype):
    judge(case(VERSIONS[-1], act=act, residual=None), *shape, dtype=dtype)


def test_few_rows_that_begin_anywhere_read_no_neighbours():
    """Outside of the rows is NaN, and they begin on addresses that are odd in elements."""
    for cols in (37, 38, 40):
        x, w = (torch.full((n, cols + 3), torch.nan, device=DEVICE) for n in (5, 72))
        x, w = (t.bfloat16()[:, 1 : cols + 1] for t in (x, w))
        x.normal_(), w.normal_()
        torch.testing.assert_close(matmul(x, w), x @ w.T, rtol=0.02, atol=0.1)


@each_type
@each_version
@pytest.mark.parametrize("rows", [40, 264])
def test_into_a_matrix_that_there_is(version: str, rows: int, dtype: torch.dtype):
    judge_into(version, rows, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_into_a_matrix_of_many_tiles(dtype: torch.dtype):
    """So many that they are added in turns: four for each multiprocessor."""
    judge_into(VERSIONS[-1], 68_000 if DEVICE.type == "cuda" else 1160, dtype)


def judge_into(version: str, rows: int, dtype: torch.dtype) -> None:
    """y += g^T x, as gradients of weights are added up."""
    g, x, y = (
        torch.randn(n, c, device=DEVICE).to(dtype) for n, c in ((300, rows), (300, 72), (rows, 72))
    )
    product, before = g.double().mT @ x.double(), y.double()
    for adds in (True, False):
        kernel.multiply_into(y, g.mT, x.mT, adds, VERSIONS.index(version))
        want = product + before if adds else product
        error = (y.double() - want).abs().max() / want.abs().max()
        assert error < 2 * torch.finfo(dtype).eps, adds


def test_what_it_goes_into_is_looked_at():
    x, w, y = (torch.zeros(shape, device=DEVICE) for shape in ((3, 8), (5, 8), (5, 3)))
    with pytest.raises(RuntimeError, match=r"^y has shape \(5, 3\)"):
        kernel.multiply_into(y, x, w, False, 0)
    with pytest.raises(RuntimeError, match=r"^y is not contiguous"):
        kernel.multiply_into(y.mT, x, w, False, 0)


@pytest.mark.slow
@each_version
def test_more_tiles_than_multiprocessors(version: str):
    judge(case(version, act="relu"), 1500, 1800, 136)
    judge(case(version, act="relu"), 1500, 1400, 136)
    judge(case(version, bias=None, residual=None), 1500, 2400, 136)
    judge(case(version, bias=None, residual=None), 1500, 1400, 136)


def test_on_one_core():
    """On the simulator that is one multiprocessor, on which blocks cannot come in pairs."""
    code = """
        import torch
        from kernels import matmul, matmul_fp8
        device = jitload.device()
        x, w = torch.ones(250, 128, device=device), torch.ones(140, 128, device=device)
        for version in matmul.VERSIONS[4:]:
            print((matmul.matmul(x.bfloat16(), w.bfloat16(), version=version) == 128).all().item())
        one, bytes_of = torch.ones((), device=device), lambda t: t.to(torch.float8_e4m3fn)
        y = matmul_fp8.matmul_fp8(bytes_of(x), bytes_of(w), one, one, use_fast_accum=True)
        print((y == 128).all().item())
    """
    said = output_of(code, env=os.environ | {"SIMULATOR_THREADS": "1"})
    assert said.split() == ["True"] * (len(VERSIONS) - 3)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("depth", [pytest.param(40, marks=pytest.mark.slow), 264])
def test_several_wide_tiles_of_a_block(act: str, depth: int):
    """Of 256 columns, with all that is fused: nothing of one tile may reach the next one."""
    rows, units = (3000, 2816) if DEVICE.type == "cuda" else (260, 512)
    of_act = case(VERSIONS[-1], act=act)
    given = inputs(of_act, rows, units, depth, torch.bfloat16)
    if act == "swiglu":
        given["residual"] = given["residual"][:, : units // 2].contiguous()
    assert_close_to_pytorch(of_act, given)


# A cluster shares the k of few rows where there are not enough units for all multiprocessors.
@each_type
@pytest.mark.parametrize("rows", [1, 16, 17, 64])
@pytest.mark.parametrize("units", [8, 136])
def test_few_rows(rows: int, units: int, dtype: torch.dtype):
    best = case(VERSIONS[-1], act="gelu")
    judge(best, rows, units, 2056, dtype=dtype)


def multiprocessors() -> int:
    if DEVICE.type == "cuda":
        return torch.cuda.get_device_properties(DEVICE).multi_processor_count
    return max(2, os.cpu_count())


PLAIN = {"bias": None, "residual": None}


# Tiles of 96, 160 and 224 columns end with half a box; with 120 units less, the last one moves.
@pytest.mark.parametrize(
    ("columns", "rounds", "less"),
    [(96, 1, 8), (160, 2, 8), (160, 2, 120), (192, 1, 8), (224, 2, 120)],
)
@pytest.mark.parametrize(
    "ends", [PLAIN, {"act": "gelu", "residual": None}, {"act": "silu", "bias": None}], ids=str
)
def test_tiles_of_as_many_columns_as_fill_a_round(
    ends: dict[str, object], columns: int, rounds: int, less: int
):
    units = rounds * multiprocessors() * columns - less
    judge_by_column(case(VERSIONS[-1], scale=0.75, **ends), 72, units, 136)
    judge_by_column(case(VERSIONS[-1], scale=0.75, **ends), 72, units - 3, 136)


# ---- a depth in parts, where there are fewer tiles than multiprocessors; x is by column, for few
# rows that are not have another kernel

ENDS = [PLAIN, {"residual": None}, {"act": "gelu"}, {"act": "swiglu", "residual": None}]


def judge_by_column(case: Case, *shape: int, dtype: torch.dtype = torch.bfloat16) -> None:
    given = inputs(case, *shape, dtype)
    assert_close_to_pytorch(case, given | {"x": transposed(given["x"])})


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_depth_in_parts(ends: dict[str, object]):
    judge_by_column(case(VERSIONS[-1], scale=0.75, **ends), 72, 112, 4104)


def test_depth_in_parts_of_float16():
    judge_by_column(case(VERSIONS[-1]), 72, 120, 4104, dtype=torch.float16)


@pytest.mark.parametrize("ends", [PLAIN, {}], ids=str)
def test_depth_in_parts_of_matrices_in_a_batch(ends: dict[str, object]):
    shapes = {"x": (3, 72, 4104), "w": (3, 40, 4104), "bias": (40,), "residual": (3, 72, 40)}
    given = {
        name: (torch.randn(shape) / (64 if name == "w" else 1)).to(DEVICE, torch.bfloat16)
        for name, shape in shapes.items()
        if name not in ends
    }
    given["x"] = transposed(given["x"])
    assert_close_to_pytorch(case(VERSIONS[-1], **ends), given)


def test_a_long_depth_has_the_same_bits_in_every_layout_of_w_and_on_every_run():
    x, w = (torch.randn(n, 4104, device=DEVICE).bfloat16() for n in (72, 40))
    for given in (x, transposed(x)):
        want = matmul(given, w)
        for of_w in (Tensor.contiguous, transposed):
            assert torch.equal(matmul(given, of_w(w)), want)


@pytest.mark.slow
def test_the_tiles_of_the_last_round_in_parts():
    """One tile more than there are multiprocessors: all others are multiplied whole."""
    judge(case(VERSIONS[-1], **PLAIN), 128 * multiprocessors() + 1, 256, 8200)


# ---- float32 rounded to tf32


def rounded(t: Tensor) -> Tensor:
    """To tf32, 13 bits shorter: to the nearest, away from 0 where there are two."""
    return ((t.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32)


def assert_product_of_rounded(y: Tensor, x: Tensor, w: Tensor) -> None:
    """y [rows, units] is x w^T, but for how a float's sums are rounded."""
    x, w = (rounded(t).double() for t in (x, w))
    allowed = 2e-7 * x.shape[-1] ** 0.5 * (x.abs() @ w.abs().mT)
    assert ((y.double() - x @ w.mT).abs() <= allowed).all()


@pytest.mark.parametrize("shape", [(128, 128, 32), (200, 136, 72), (65, 264, 260), (1, 4, 4)])
@pytest.mark.parametrize("x_by_row", [True, False])
@pytest.mark.parametrize("w_by_row", [True, False])
@pytest.mark.parametrize("version", [pytest.param("mma", marks=pytest.mark.slow), VERSIONS[-1]])
def test_tf32(version: str, shape: tuple[int, int, int], x_by_row: bool, w_by_row: bool):
    rows, units, cols = shape
    if not x_by_row:
        rows = (rows + 3) // 4 * 4  # whole pieces of 16 bytes, as cols and units have
    generator = torch.Generator().manual_seed(rows)
    x, w, grad = (
        torch.randn(n, m, generator=generator).to(DEVICE)
        for n, m in ((rows, cols), (units, cols), (rows, units))
    )
    inputs = {
        "x": x if x_by_row else transposed(x),
        "w": w if w_by_row else transposed(w),
    }
    got = outcome(lambda **given: matmul(**given, tf32=True, version=version), inputs, (grad,))
    y, dx, dw = got["y"], got["dx"], got["dw"]
    assert_product_of_rounded(y, x, w)
    assert_product_of_rounded(dx, grad, w.mT.contiguous())
    if rows % 4 == 0:
        assert_product_of_rounded(dw, grad.mT.contiguous(), x.mT.contiguous())


@pytest.mark.parametrize("x_by_row", [True, False])
def test_tf32_depth_in_parts(x_by_row: bool):
    x, w = (torch.randn(n, 2056, device=DEVICE) for n in (136, 112))
    y = matmul(x if x_by_row else transposed(x), w, tf32=True)
    assert_product_of_rounded(y, x, w)
    assert torch.equal(y, matmul(x, transposed(w), tf32=True))
    swiglu = matmul(x, w, act="swiglu", tf32=True).double()
    exact = reference.matmul(rounded(x).double(), rounded(w).double(), act="swiglu")
    assert ((swiglu - exact).abs() <= 1e-4 * exact.abs().max()).all()


def test_tf32_with_all_that_follows():
    given = inputs(case("mma"), 130, 136, 40, torch.float32)
    y = matmul(**given, act="gelu", scale=0.5, tf32=True)
    given |= {name: rounded(given[name]) for name in ("x", "w")}
    given = {name: t.double() for name, t in given.items()}
    exact = reference.matmul(**given, act="gelu", scale=0.5)
    assert torch.allclose(y.double(), exact, rtol=1e-5, atol=1e-5)


def test_tf32_changes_nothing_else():
    x, w = (torch.randn(n, 68, device=DEVICE) for n in (33, 40))
    assert not torch.equal(matmul(x, w, tf32=True), matmul(x, w))
    for dtype in (torch.float64, torch.bfloat16):
        assert torch.equal(
            matmul(x.to(dtype), w.to(dtype), tf32=True), matmul(x.to(dtype), w.to(dtype))
        )
    x, w = x[:, :67], w[:, :67]  # rows of 67 elements one after the other are not read in vectors
    x, w = x.contiguous(), w.contiguous()
    assert torch.equal(matmul(x, w, tf32=True), matmul(x, w))
    x, w = torch.randn(9, 64, device=DEVICE), torch.randn(8, 64, device=DEVICE)
    assert torch.equal(matmul(x, w, tf32=True, version="registers"), matmul(x, w))


# ---- float64, by tensor cores as well


FEWER = 1 if DEVICE.type == "cuda" else 8  # than what gives each multiprocessor some tiles


@pytest.mark.parametrize("shape", [(1096, 576, 40), (560, 1040, 328), (1040, 617, 65)], ids=str)
def test_doubles(shape: tuple[int, int, int]):
    """Of whole numbers, whose sums are exact in any order; odd columns are copied first."""
    rows, units, cols = shape[0] // FEWER, shape[1] // FEWER, shape[2]
    generator = torch.Generator().manual_seed(rows)
    x, w, residual = (
        torch.randint(-99, 100, of, generator=generator).to(DEVICE, torch.float64)
        for of in ((rows, cols), (units, cols), (rows, units))
    )
    given = {"bias": residual[0].clone(), "residual": residual, "act": "relu", "scale": 0.5}
    want = reference.matmul(x, w, **given)
    for of_x, of_w in itertools.product((Tensor.contiguous, transposed), repeat=2):
        assert torch.equal(matmul(of_x(x), of_w(w), **given), want)


@pytest.mark.parametrize("w_by_row", [True, False])
def test_swiglu_of_doubles(w_by_row: bool):
    of_act = case(VERSIONS[-1], act="swiglu", residual=None)
    given = inputs(of_act, 1040 // FEWER, 2 * 608 // FEWER, 72, torch.float64)
    want = reference.matmul(**given, act="swiglu")
    if not w_by_row:
        given["w"] = transposed(given["w"])
    torch.testing.assert_close(matmul(**given, act="swiglu"), want, rtol=1e-13, atol=1e-13)


# ---- layouts


@each_version
@pytest.mark.parametrize(("rows", "units"), [(40, 264), (136, 264), (136, 56)])
def test_transposed_views_give_the_same_bits(version: str, rows: int, units: int):
    x, w = (torch.randn(n, 136, device=DEVICE).bfloat16() for n in (rows, units))
    want = matmul(x, w, version=version)
    for of_x, of_w in itertools.product((Tensor.contiguous, transposed), repeat=2):
        assert torch.equal(matmul(of_x(x), of_w(w), version=version), want)


@each_version
def test_a_part_of_a_larger_matrix(version: str):
    x, w = (torch.randn(200, 400, device=DEVICE).bfloat16() for _ in "xw")
    for columns in (slice(64, 264), slice(3, 203), slice(None, None, 2)):
        got = matmul(x[:, columns], w[:, columns], version=version)
        want = matmul(x[:, columns].contiguous(), w[:, columns].contiguous(), version=version)
        torch.testing.assert_close(got, want)


def test_dimensions_of_one_row_say_nothing_of_where_the_next_one_lies():
    """Of x [2, 1, 3, 8] transposed, [2, 1, 3] cannot be counted as six rows."""
    x, w = torch.randn(2, 1, 3, 8, device=DEVICE), torch.randn(5, 8, device=DEVICE)
    for view in (transposed(x), x.transpose(0, 1), x.transpose(1, 2)):
        torch.testing.assert_close(matmul(view, w), matmul(view.contiguous(), w))


@pytest.mark.parametrize("version", MARKED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_matrix_w_for_each_of_x(version: str, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (2, 3, 70, 72), "w": (2, 3, 40, 72), "bias": (40,), "residual": (2, 3, 70, 40)}
    given = {
        name: torch.randn(shape, generator=generator).to(DEVICE, dtype)
        for name, shape in shapes.items()
    }
    assert_close_to_pytorch(case(version), given)
    del given["bias"]
    assert_close_to_pytorch(case(version, bias=None), given | {"x": transposed(given["x"])})


# ---- what is fused


@pytest.mark.parametrize("version", MARKED)
@pytest.mark.parametrize("act", ACTS)
def test_every_act(version: str, act: str):
    options = {"act": act, "scale": 0.75} | ({"residual": None} if act == "swiglu" else {})
    for dtype in (torch.float32, torch.bfloat16):
        judge(case(version, **options), 33, 144, 72, dtype=dtype)


@each_version
def test_swiglu_ends_within_a_tile(version: str):
    """The halves of w are no multiple of a tile's: the left one must not run into the right one."""
    judge(case(version, act="swiglu", residual=None), 70, 2 * 200, 72)
    judge(case(version, act="swiglu", residual=None), 70, 2 * 36, 72)


@each_type
def test_quick_acts_are_as_good_as_exact_ones(dtype: torch.dtype):
    """Where y is rounded to 16 bits: they reach all of the tails of gelu and silu."""
    z = torch.linspace(-12, 12, 4096, device=DEVICE)[:, None].to(dtype)
    z[:6, 0] = torch.tensor([-3e4, -70, -50, -40, -40, 3e4])
    one = torch.zeros(8, 8, device=DEVICE, dtype=dtype)
    one[:, 0] = 1
    x = torch.nn.functional.pad(z, (0, 7))
    allowed = 0.51 if dtype == torch.half else 0.54
    for act, least in {"relu": 2.0**-24, "gelu": 2.0**-24, "silu": 2.0**-126}.items():
        got = matmul(x, one, act=act)[:, 0].double()
        true = reference.matmul(z.double(), one[:1, :1].double(), act=act)[:, 0]
        kind = torch.finfo(dtype)
        unit = (true.abs() * kind.eps).clamp(min=max(least, kind.tiny * kind.eps))
        off = (got - true).abs() / unit
        assert off.max() < allowed, act
    x[0, 0] = -torch.inf
    assert matmul(x[:2], one, act="silu")[0].isnan().all()


def test_second_derivative_without_act_and_with_one():
    x, w = (torch.randn(3, 4, dtype=torch.double, device=DEVICE, requires_grad=True) for _ in "xw")
    assert torch.autograd.gradgradcheck(lambda x, w: matmul(x, w, scale=0.5), (x, w))
    (dx,) = torch.autograd.grad(matmul(x, w, act="silu").sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="matmul has no second derivative"):
        dx.sum().backward()


@pytest.mark.parametrize("act", ACTS[1:])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_that_begins_anywhere_gives_the_same_bits(act: str, dtype: torch.dtype):
    """Where it stands on 16 bytes, the gradient of z is computed in vectors."""
    x, w, bias = (torch.randn(*n, device=DEVICE).to(dtype) for n in ((9, 24), (80, 24), (80,)))
    given = [t.requires_grad_() for t in (x, w, bias)]
    y = matmul(*given, act=act)
    grad = torch.randn_like(y)
    elsewhere = torch.empty(grad.numel() + 1, device=DEVICE, dtype=dtype)[1:].view_as(grad)
    elsewhere.copy_(grad)
    aligned, unaligned = (
        torch.autograd.grad(y, given, g, retain_graph=True) for g in (grad, elsewhere)
    )
    for one, other in zip(aligned, unaligned, strict=True):
        assert torch.equal(one, other)


def test_only_the_products_that_are_asked_for():
    x, w = (torch.randn(3, 8, device=DEVICE, requires_grad=wanted) for wanted in (False, True))
    got = torch.autograd.grad(matmul(x, w).sum(), w)
    torch.testing.assert_close(got[0], x.sum(0).expand(3, 8))


def test_of_no_units():
    given = {"x": torch.randn(3, 8, device=DEVICE), "w": torch.zeros(0, 8, device=DEVICE)}
    got = outcome(matmul, given | {"bias": torch.zeros(0, device=DEVICE)})
    assert got["y"].shape == (3, 0)
    assert torch.equal(got["dx"], torch.zeros_like(given["x"]))


# ---- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": (5, 9)}, r"w has shape \(5, 9\), but x has shape \(3, 8\); wanted is \(units, 8\)"),
        ({"w": (8,)}, r"w has shape \(8,\), but x has shape \(3, 8\); wanted is \(units, 8\)"),
        ({"w": (2, 5, 8)}, r"w has shape \(2, 5, 8\), but x"),
        ({"bias": (4,)}, r"bias has shape \(4,\), but x has shape \(3, 8\); wanted is \(5,\)"),
        ({"residual": (3, 8)}, r"residual has shape \(3, 8\), but .* wanted is \(3, 5\)"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, tuple], message: str):
    shapes = {"x": (3, 8), "w": (5, 8), "bias": (5,), "residual": (3, 5)} | change
    given = {name: torch.zeros(shape, device=DEVICE) for name, shape in shapes.items()}
    with pytest.raises(RuntimeError, match=message):
        matmul(**given)


def test_wrong_act():
    x, w = torch.zeros(3, 8, device=DEVICE), torch.zeros(5, 8, device=DEVICE)
    with pytest.raises(ValueError, match="act is 'tanh'; wanted is one of none, relu, gelu"):
        matmul(x, w, act="tanh")
    with pytest.raises(RuntimeError, match="wanted is an even number of rows, for swiglu"):
        matmul(x, w, act="swiglu")


# ---- autocast


def test_autocast_adds_a_wider_residual_after_the_product():
    """As PyTorch does in `residual + linear(x)`: the sum keeps the residual's digits."""
    given = inputs(case(VERSIONS[-1]), 9, 24, 40, torch.float32)

    def theirs(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, w, bias) + residual

    with torch.autocast(DEVICE.type, torch.bfloat16):
        got, want = outcome(matmul, given), outcome(theirs, given)
        alone = matmul(given["x"], 0 * given["w"], None, given["residual"])
        with pytest.raises(RuntimeError, match=r"residual has shape \(24,\); wanted is \(9, 24\)"):
            matmul(**given | {"residual": given["residual"][0]})
        with pytest.raises(RuntimeError, match=r"residual is int32.* wanted is one type for all"):
            matmul(**given | {"residual": given["residual"].int()})
    assert torch.equal(alone, given["residual"])
    for name in want:
        assert got[name].dtype == want[name].dtype == torch.float32
        torch.testing.assert_close(got[name], want[name], rtol=2**-7, atol=2**-7)


# ---- the checker


def kernels_of(report: lab.Report) -> list[str]:
    """What was launched, without template arguments."""
    return [kernel.partition("<")[0] for kernel in report.launches["kernel"]]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "order"), [(torch.float16, 0), (torch.bfloat16, 1)], ids=str)
def test_the_checker_finds_nothing_and_sees_the_kernels(dtype: torch.dtype, order: int):
    """In two orders of the threads, also where a cluster adds up and warpgroups take turns."""
    x, w = (torch.randn(264, 200).to(dtype) for _ in range(2))  # more than few rows
    bias = torch.randn(264).to(dtype)
    deep = torch.randn(72, 4104).to(dtype)
    for version in BY_TENSOR_CORES:
        for given in ((x, w), (x, w, bias), (transposed(x), transposed(w))):
            report = no_findings(matmul, *given, version=version, thread_order=order)
            late = version in VERSIONS[5:]
            assert kernels_of(report) == [f"matmul_{'specialized' if late else version}"]
    residual = torch.randn(264, 264).to(dtype)
    no_findings(matmul, x, w, bias, residual, act="gelu", thread_order=order)
    odd = (x[:, :-1].contiguous(), transposed(w)[:, :-1])  # the one is copied
    report = no_findings(matmul, *odd, thread_order=order)
    assert kernels_of(report) == ["align_rows", "matmul_specialized"]
    for rows, units, wanted in (
        (8, 64, "_mma<"),
        (12, 64, "<FewRows<"),
        (20, 64, "<FewRowsUntransposed<"),
        (72, 72, "<FewRows<"),
    ):
        report = no_findings(matmul, deep[:rows], deep[:units], thread_order=order)
        (kernel,) = report.launches["kernel"]
        assert kernel.startswith(f"matmul_few_rows{wanted}")
    for given in ((transposed(deep), deep), (transposed(deep), transposed(deep), bias[:72])):
        report = no_findings(matmul, *given, thread_order=order)
        assert kernels_of(report) == ["matmul_specialized", "matmul_split_k_reduce"]
    floats = x.float(), transposed(w.float())
    for version, launches in (("mma", 1), (VERSIONS[-1], 2)):  # w is copied by one of its own
        report = no_findings(matmul, *floats, tf32=True, version=version, thread_order=order)
        assert len(report.launches) == launches
    for given in (floats, (transposed(floats[0]), floats[1].contiguous())):
        report = no_findings(matmul, *(t.double() for t in given), thread_order=order)
        assert kernels_of(report) == ["matmul_mma"]


def test_results_are_those_of_the_reference_in_a_module():
    """A layer as people write it, beside torch.nn.Linear."""
    linear = torch.nn.Linear(40, 24, device=DEVICE)
    x = torch.randn(2, 5, 40, device=DEVICE)
    got = outcome(matmul, {"x": x, "w": linear.weight, "bias": linear.bias})
    want = outcome(
        torch.nn.functional.linear, {"input": x, "weight": linear.weight, "bias": linear.bias}
    )
    for ours, theirs in zip(got.values(), want.values(), strict=True):
        torch.testing.assert_close(ours, theirs)
