"""Every op in every version and type: right to within PyTorch's own error, on awkward input."""

from dataclasses import replace

import pytest
import torch
from op_cases import (
    BEST,
    CASES,
    DEVICE,
    DTYPES,
    Case,
    assert_as_good_as_pytorch,
    assert_close_to_pytorch,
    assert_none,
    by_name,
    is_elementwise,
    is_rounded_once,
    module_of,
    on_cpu,
    others_of,
    outcome,
    random_grad,
)
from torch import Tensor

import reference
from lab.auditor.cases import (
    SPECIAL_ROWS,
    expanded,
    misaligned,
    special_values,
    strided,
    transposed,
)

each_case = pytest.mark.parametrize("case", CASES, ids=str)
EXACT = [case for case in CASES if is_elementwise(case.op) and is_rounded_once(case.op)]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])


def in_each_type(places: list[tuple], every: int = 2) -> list:
    """Each place with `every` of the types in turn; on a GPU, where that is quick, with all four.

    What a type decides (its size, its rounding) and what a place decides (tails, alignment) are
    thus tried in pairs instead of in every combination.
    """
    every = 4 if DEVICE.type == "cuda" else every
    chosen = [
        (*place, DTYPES[(number + number // 4 + step * 4 // every) % 4])
        for number, place in enumerate(places)
        for step in range(every)
    ]
    return [pytest.param(*each, id="-".join(map(named, each))) for each in chosen]


def named(value: object) -> str:
    return str(getattr(value, "__name__", value)).removeprefix("torch.")


# Rows and columns: 1, primes, powers of two and their neighbours, multiples of the vector and not.
# test_every_width_up_to_64 has the narrow ones, test_wide_rows the others.
SHAPES = [(129, 33), (2, 1023), (1, 1), (2, 4096), (7, 8)]


@pytest.mark.parametrize(
    ("rows", "cols", "dtype"),
    [
        *in_each_type(SHAPES[:2], every=4),
        *in_each_type(SHAPES[2:]),
    ],
)
@each_case
def test_error_is_about_pytorchs(case: Case, rows: int, cols: int, dtype: torch.dtype):
    assert_as_good_as_pytorch(case, lambda seed: case.inputs(rows, cols, dtype, seed))


# More rows than a persistent grid takes at once; more columns than fit into registers, forward and
# backward; and so on up to the widest row that is promised.
LARGE = [(4501, 16), (4501, 3), (2, 8200), (1, 32776), (1, 65536), (1, 262145)]

LARGE_OF_BEST = [(case, *shape) for case in BEST for shape in LARGE if shape[1] <= case.widest]


@pytest.mark.parametrize(("case", "rows", "cols"), LARGE_OF_BEST, ids=str)
def test_many_rows_and_wide_rows(case: Case, rows: int, cols: int):
    assert_close_to_pytorch(case, case.inputs(rows, cols, torch.float32))


# The widest is promised for rows that are normed, added up or the like; a product takes minutes.
# (test_linear_cross_entropy.py has its own errors of many rows.)
LARGE_OF_EACH = [
    (case, *shape)
    for case in CASES
    for shape in LARGE
    if case.widest >= LARGE[-1][1] and not (case.is_product and shape == LARGE[-1])
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "rows", "cols", "dtype"), in_each_type(LARGE_OF_EACH, every=1))
def test_errors_of_many_rows_and_wide_rows(case: Case, rows: int, cols: int, dtype: torch.dtype):
    assert_as_good_as_pytorch(case, lambda seed: case.inputs(rows, cols, dtype, seed))


# Every width up to two warps' lanes, where each has its own remainder of vectors and lanes.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@each_case
def test_every_width_up_to_64(case: Case, dtype: torch.dtype):
    for cols in range(1, 65):
        # Each remainder of 16 in both types.
        if DEVICE.type != "cuda" and (cols + cols // 16) % 2 != (dtype == torch.bfloat16):
            continue

        def draw(seed: int, cols: int = cols) -> dict[str, Tensor]:
            return case.inputs(3, cols, dtype, seed)

        if case.is_product and not case.op.weights:
            # Of 64 draws some find PyTorch lucky, for powers show how scores round.
            assert_as_good_as_pytorch(case, draw)
        else:
            assert_close_to_pytorch(case, draw(cols))


# Primes, and the powers of two and their neighbours, where a row leaves registers or is split; and
# widths for which a block's threads are no power of two.
POWERS = [2047, 2049, 8191, 8192, 8193, 32767, 65537, 131071, 262144]
NARROWER = [127, 256, 509, 768, 1000, 1021, 1025, 1288]
WIDE = [*POWERS, *NARROWER, 2560, 4093, 5128, 7168, 12296, 16381, 20480]


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", BEST, ids=str)
def test_wide_rows(case: Case, first: int):
    """Each width has one of the two types, and on a GPU, where it is quick, both."""
    for number, cols in enumerate(cols for cols in WIDE if cols <= case.widest):
        if DEVICE.type != "cuda" and number % 2 != first:
            continue
        dtype = (torch.float32, torch.bfloat16)[first]
        inputs = case.inputs(2, cols, dtype, seed=cols)
        assert_close_to_pytorch(case, inputs)


# More than the 65535 blocks that a grid has in y; on a GPU, where it is quick, a million.
MANY = 2**20 + 1 if DEVICE.type == "cuda" else 2**16 + 1


@pytest.mark.slow
@pytest.mark.parametrize("cols", [1, 2])
@pytest.mark.parametrize("case", BEST, ids=str)
def test_many_short_rows(case: Case, cols: int):
    assert_close_to_pytorch(case, case.inputs(MANY, cols, torch.float32))


# ---- layouts


LAYOUTS = [(layout, cols) for layout in (transposed, strided, expanded) for cols in (64, 65)]


# What is not contiguous is copied before any kernel runs, whatever its type.
@pytest.mark.parametrize(
    ("layout", "cols", "dtype"),
    [
        *in_each_type(LAYOUTS, every=1),
        *in_each_type([(misaligned, 64)], every=4),
        *in_each_type([(misaligned, 65)]),
    ],
)
@each_case
def test_layouts(case: Case, layout, cols: int, dtype: torch.dtype):
    def draw(seed: int) -> dict[str, Tensor]:
        inputs = case.inputs(6, cols, dtype, seed)
        return {name: layout(tensor) for name, tensor in inputs.items()}

    assert_as_good_as_pytorch(case, draw)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", BEST, ids=str)
def test_rows_that_begin_anywhere(case: Case, dtype: torch.dtype):
    """Each of nine rows of an odd width has its own distance from a 16-byte boundary."""
    for cols in (129, 135, 257, 263, 270, 1021):
        inputs = case.inputs(9, cols, dtype, seed=cols)
        assert_close_to_pytorch(case, inputs)
        assert_close_to_pytorch(case, {name: misaligned(t) for name, t in inputs.items()})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("cols", [33, 130, 301])
@pytest.mark.parametrize("case", BEST, ids=str)
def test_many_rows_that_begin_anywhere(case: Case, cols: int, dtype: torch.dtype):
    """More than there are threads for at a time, and no multiple of how many begin alike."""
    assert_close_to_pytorch(case, case.inputs(1501, cols, dtype))


@pytest.mark.parametrize(("only", "dtype"), in_each_type([("first",), ("others",)], every=2))
@each_case
def test_one_misaligned_tensor(case: Case, only: str, dtype: torch.dtype):
    moved = [case.first] if only == "first" else case.others

    def draw(seed: int) -> dict[str, Tensor]:
        inputs = case.inputs(6, 64, dtype, seed)
        return inputs | {name: misaligned(inputs[name]) for name in moved}

    assert_as_good_as_pytorch(case, draw)


@pytest.mark.parametrize("layout", [transposed, expanded, misaligned])
@each_case
def test_layouts_of_the_arriving_gradient(case: Case, layout):
    inputs = case.inputs(6, 64, torch.float32)
    grad = random_grad(case.theirs(**inputs))
    assert_close_to_pytorch(case, inputs, tuple(layout(g) if g.dim() else g for g in grad))


@pytest.mark.parametrize("shape", [(9,), (2, 1, 3, 8)], ids=str)
@each_case
def test_any_rank(case: Case, shape: tuple[int, ...]):
    assert_as_good_as_pytorch(case, lambda seed: case.inputs_of_rank(shape, torch.float32, seed))


@pytest.mark.parametrize(
    ("rows", "cols", "dtype"), in_each_type([(0, 8), (0, 5), (5, 0), (0, 0)], every=1)
)
@each_case
def test_empty(case: Case, rows: int, cols: int, dtype: torch.dtype):
    inputs = case.inputs(rows, cols, dtype)
    if rows and not cols and "cols" in case.op.limits.values():  # no integer is below 0
        with pytest.raises(RuntimeError, match=" or ".join(case.op.limits)):
            case.ours(**inputs)
        return
    assert_close_to_pytorch(case, inputs)


# ---- values


@each_dtype
@pytest.mark.parametrize("case", EXACT, ids=str)
def test_special_values_as_in_pytorch(case: Case, dtype: torch.dtype):
    x = torch.tensor(special_values(dtype), dtype=dtype, device=DEVICE)
    got, want = outcome(case.ours, {"x": x}), outcome(case.theirs, {"x": x})
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=0, atol=0, equal_nan=True)


# Whole vectors, and rows with a tail: in turn with the types.
AMONG_OTHERS = [
    (case, cols, (torch.float32, torch.bfloat16)[(number + step) % 2])
    for number, case in enumerate(CASES)
    for step, cols in enumerate((8, 33))
]


@pytest.mark.parametrize(("case", "cols", "dtype"), AMONG_OTHERS, ids=str)
def test_special_values_among_others(case: Case, cols: int, dtype: torch.dtype):
    """A row each with one of them, two with several: where PyTorch has NaN or inf, so do we."""
    for name in case.differentiable:
        inputs = case.inputs(len(SPECIAL_ROWS) + 1, cols, dtype)
        rows = inputs[name] if inputs[name].dim() > 1 else inputs[name][None]
        for row, values in zip(rows, SPECIAL_ROWS, strict=False):
            row[: len(values)] = row.new_tensor(values)
        got, want = outcome(case.ours, inputs), outcome(case.theirs, inputs)
        others = [outcome(case.theirs, other) for other in others_of(inputs)]
        for result, y in want.items():
            nan = y.isnan()
            agreed = torch.stack([nan == other[result].to(DEVICE).isnan() for other in others])
            wrong = (got[result].isnan() != nan) | (y.isinf() & (got[result] != y))
            assert_none(wrong & agreed.all(0), result, got[result], y, inputs)


@pytest.mark.parametrize("value", [0.0, -0.0])
@each_case
def test_the_sign_of_zero(case: Case, value: float):
    inputs = case.inputs(3, 8, torch.float32)
    for name in case.differentiable:
        inputs[name] = torch.full_like(inputs[name], value)
    got, want = by_name(case.ours(**inputs)), by_name(case.theirs(**inputs))
    other = by_name(case.theirs(**on_cpu(inputs)))
    for name, y in want.items():
        zero = y == 0
        agreed = zero & (y.signbit() == other[name].to(DEVICE).signbit())
        wrong = ((got[name] == 0) != zero) | (agreed & (got[name].signbit() != y.signbit()))
        assert_none(wrong, name, got[name], y, inputs)
    assert_close_to_pytorch(case, inputs)  # the gradients, too, where a relu bends


@each_dtype
@pytest.mark.parametrize("version", module_of("scale_bias_relu").VERSIONS)
@pytest.mark.parametrize("number", [-1.5, 2, 0.1])
def test_scale_may_be_a_number(version: str, number: float, dtype: torch.dtype):
    case = Case(reference.OPS["scale_bias_relu"], version, {"scale": number})
    assert_as_good_as_pytorch(case, lambda seed: case.inputs(5, 40, dtype, seed))


@pytest.mark.parametrize("offset", [10.0, 1e3, 1e5])
@pytest.mark.parametrize("cols", [128, 1000, 8200])
@pytest.mark.parametrize("case", [c for c in CASES if c.op.name == "layer_norm"], ids=str)
def test_layer_norm_far_from_zero(case: Case, cols: int, offset: float):
    """Where the mean is large beside the deviation, digits cancel."""

    def draw(seed: int) -> dict[str, Tensor]:
        inputs = case.inputs(4, cols, torch.float32, seed)
        inputs["x"] += offset
        return inputs

    assert_as_good_as_pytorch(case, draw)


@pytest.mark.parametrize("offset", [-1e3, 1e3])
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op.name in ("softmax", "cross_entropy")], ids=str
)
def test_powers_far_from_zero(case: Case, offset: float):
    """The largest of a row is subtracted first, also where all are far below zero."""
    inputs = case.inputs(4, 100, torch.float32)
    inputs["x"] += offset
    assert_close_to_pytorch(case, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=lambda dtype: str(dtype).split(".")[1])
@pytest.mark.parametrize("cols", [40000, 262144])
@pytest.mark.parametrize("case", [c for c in BEST if "layer_norm" in c.op.name], ids=str)
def test_wide_layer_norm_far_from_zero(case: Case, cols: int, dtype: torch.dtype):
    """Rows whose threads meet once, with others among them for which that is not enough."""
    inputs = case.inputs(5, cols, dtype)
    last = inputs["residual" if "residual" in inputs else "x"]
    inputs["x"][2] = last[2] = 0
    last += torch.tensor([[0.0], [100.0], [7.0], [-3.0], [0.0]]).to(last)
    last[4, :8] += 50  # what a first guess at the mean may come from
    assert_close_to_pytorch(case, inputs)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=lambda dtype: str(dtype).split(".")[1])
@pytest.mark.parametrize("cols", [1024, 40000, 65536])
@pytest.mark.parametrize("case", [c for c in BEST if c.op.name == "layer_norm"], ids=str)
def test_a_row_is_the_same_beside_any_others(case: Case, cols: int, dtype: torch.dtype):
    """Where one block has several rows, and some of them need more care than others."""
    inputs = case.inputs(200, cols, dtype)
    expected = case.ours(**inputs)[:100]
    inputs["x"][100:] = 7
    assert torch.equal(case.ours(**inputs)[:100], expected)


# ---- versions

LADDERS = [case for case in BEST if "stream" in module_of(case.op.name).VERSIONS]


def bits_of(case: Case, versions: tuple[str, ...], cols: int, dtype: torch.dtype) -> list[dict]:
    inputs = case.inputs(3, cols, dtype)
    return [outcome(replace(case, version=version).ours, inputs) for version in versions]


def assert_same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    for name, y in first.items():
        assert torch.equal(y, second[name]), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cols", [64, 1000, 4096])
@pytest.mark.parametrize("case", LADDERS, ids=str)
def test_versions_hand_rows_down(case: Case, cols: int, dtype: torch.dtype):
    """A version takes every row: those that are not its own go to the version before it."""
    vector, cluster, stream = bits_of(case, ("vector", "cluster", "stream"), cols, dtype)
    assert_same_bits(vector, cluster)
    assert_same_bits(vector, stream)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="on a GPU each version has cases of its own")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", LADDERS, ids=str)
def test_vector_hands_down_rows_that_are_too_wide_for_a_block(case: Case, dtype: torch.dtype):
    cols = 262144
    assert_close_to_pytorch(replace(case, version="vector"), case.inputs(1, cols, dtype))


# ---- the same bits on every run


@pytest.mark.parametrize(
    ("rows", "cols", "dtype"), in_each_type([(700, 64), (3, 9000), (300, 33)], every=1)
)
@pytest.mark.parametrize("case", BEST, ids=str)
def test_same_bits_on_every_run(case: Case, rows: int, cols: int, dtype: torch.dtype):
    inputs = case.inputs(rows, cols, dtype)
    first = outcome(case.ours, inputs)
    for _ in range(3):
        assert_same_bits(first, outcome(case.ours, inputs))
