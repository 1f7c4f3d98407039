"""Which launches are chosen for a shape, of shapes up to the limits, without a GPU."""

import heapq
import itertools
import math
import os
import random
from pathlib import Path

import pytest
import torch
from op_cases import DEVICE, Case, assert_close_to_pytorch

import jitload
import reference
from jitloader.handle import Kernel
from kernels.matmul import VERSIONS

OP = reference.OPS["matmul"]

H200 = 132  # multiprocessors
TILES = {64: (128, 128), 128: (128, 64), 256: (64, 64)}  # keys of a tile and rows of a step


@pytest.fixture(scope="module")
def plans() -> Kernel:
    source = Path(__file__).parent / "kernels/plans.cu"
    include = [str(folder) for folder in (*jitload.op_folders(), jitload.KERNELS / "include")]
    return jitload.load(source, target="cpu", include=include)


def split(plans: Kernel, shape: tuple[int, ...], causal: int) -> tuple[int, int, int, int]:
    """Whole slices, blocks that share a tile of the others, tiles of a slice, steps of a tile.

    shape: batches, heads, rows, heads of k and v, keys, columns.
    """
    _, heads, rows, kv_heads, keys, cols = shape
    plan = torch.zeros(2, dtype=torch.int64)
    plans.attention_split(*shape, causal, H200, plan)
    of_keys, of_rows = TILES[cols]
    return *plan.tolist(), -(-keys // of_keys), heads // kv_heads * -(-rows // of_rows)


def test_blocks_share_keys_where_multiprocessors_would_idle(plans: Kernel):
    for cols in TILES:
        for causal in (0, 1):
            for heads, kv_heads in ((12, 1), (8, 1), (12, 3), (71, 1)):
                shape = 1, heads, 4096, kv_heads, 4096, cols
                whole, splits, tiles, _ = split(plans, shape, causal)
                assert whole == 0, shape
                assert kv_heads * tiles * splits > 0.7 * H200, (shape, splits)
            whole, splits, *_ = split(plans, (16, 32, 4096, 8, 4096, cols), causal)
            assert (whole, splits) == (16 * 8, 1)


def test_the_last_round_of_blocks_is_shared(plans: Kernel):
    """672 tiles of equal work are five rounds of 132 blocks and 12 tiles more."""
    whole, splits, tiles, steps = split(plans, (3, 24, 3584, 8, 3584, 128), 0)
    assert (tiles, steps) == (28, 168)
    assert 0 < whole < 24
    assert splits > 1
    assert whole * tiles <= 5 * H200
    rounds = -(-whole * tiles // H200) * steps
    assert rounds + steps / splits < 0.9 * 6 * steps


def test_blocks_that_share_keys_have_work_and_room(plans: Kernel):
    draw = random.Random(0)
    for _ in range(2000):
        cols, kv_heads = draw.choice([*TILES]), draw.choice((1, 2, 3, 8, 71))
        rows, keys, batches = (round(2 ** draw.uniform(0, most)) for most in (20, 20, 12))
        heads = kv_heads * draw.choice((1, 2, 4, 7, 48))
        shape = batches, heads, rows, kv_heads, keys, cols
        whole, splits, tiles, steps = split(plans, shape, draw.randrange(2))
        assert 1 <= splits <= max(steps, 1), shape
        assert 0 <= whole <= batches * kv_heads, shape
        shared = (batches * kv_heads - whole) * tiles * splits
        partial_sums = 2 * 4 * shared * TILES[cols][0] * cols  # bytes
        assert partial_sums <= 160 << 20, shape


def test_blocks_are_drawn_after_those_that_they_wait_for(plans: Kernel):
    """A block waits for those with lower tiles of its slice, which must have been drawn before."""
    draw = random.Random(1)
    for _ in range(200):
        cols, kv_heads, causal = draw.choice((64, 128)), draw.choice((1, 3, 8)), draw.randrange(2)
        length, batches = (round(2 ** draw.uniform(0, most)) for most in (13, 4))
        shape = batches, kv_heads * draw.choice((1, 2, 7)), length, kv_heads, length, cols
        whole, splits, tiles, _ = split(plans, shape, causal)
        blocks = (whole + (batches * kv_heads - whole) * splits) * tiles
        order = torch.zeros(blocks, 2, dtype=torch.int64)
        arguments = (*shape, causal, H200, whole, splits, blocks, order)
        assert plans.attention_order(*arguments) == blocks
        next_tiles: dict[int, int] = {}  # of each slice; all its blocks with a tile come together
        left: dict[int, int] = {}
        for tile, number in order.tolist():
            slice_ = number if number < whole else whole + (number - whole) // splits
            if left.get(slice_, 0) == 0:
                left[slice_] = 1 if slice_ < whole else splits
                next_tiles[slice_] = next_tiles.get(slice_, -1) + 1
            left[slice_] -= 1
            assert tile == next_tiles[slice_], shape
        assert set(next_tiles.values()) == {tiles - 1}
        assert len(next_tiles) == batches * kv_heads


def test_long_causal_tiles_come_first_in_the_last_rounds(plans: Kernel):
    """So that all multiprocessors end together, though the last tiles have hardly any work."""
    for shape in ((3, 56, 1536, 8, 1536, 128), (9, 28, 911, 4, 911, 128)):
        whole, splits, tiles, steps = split(plans, shape, 1)
        blocks = shape[0] * shape[3] * tiles
        assert (whole, splits) == (shape[0] * shape[3], 1)
        order = torch.zeros(blocks, 2, dtype=torch.int64)
        plans.attention_order(*shape, 1, H200, whole, splits, blocks, order)
        free = [0.0] * H200
        work = [steps * (1 - tile * 128 / shape[2]) for tile in order[:, 0].tolist()]
        for each in work:
            heapq.heapreplace(free, free[0] + each)
        assert max(free) < 1.1 * max(sum(work) / H200, steps)


def test_rows_of_any_width_fill_their_threads(plans: Kernel):
    plan = torch.zeros(3, dtype=torch.int64)
    for cols in (0, 1, 2, 3, 10, 17, 100, 1000, 50257, 1 << 40):
        for rows in (1, 3, 62116, 1 << 33):
            plans.any_width(rows, cols, plan)
            threads, rows_each, blocks = plan.tolist()
            assert 128 <= threads * rows_each <= 512
            assert 2 <= threads <= max(cols, 2)
            assert 1 <= blocks <= 2**31 - 1


def test_few_rows_have_more_threads(plans: Kernel):
    plan = torch.zeros(2, dtype=torch.int64)
    for rows, vectors, expected in ((1, 1024, 2), (136, 192, 2), (136, 2048, 4), (4096, 512, 8)):
        plans.few_rows(rows, vectors, H200, plan)
        assert plan.tolist() == [expected, vectors // expected], (rows, vectors)
    plans.few_rows(12, 0, H200, plan)  # no columns: no division by their threads
    assert plan[1] == 0
    draw = random.Random(2)
    for _ in range(2000):
        rows, vectors = (round(2 ** draw.uniform(0, most)) for most in (30, 13))
        plans.few_rows(rows, vectors, H200, plan)
        each, threads = plan.tolist()
        assert each in (2, 4, 8)
        assert threads <= 512 or each == 8
        assert each == 8 or rows * threads <= 1024 * H200


def test_partial_sums_have_blocks_that_exist(plans: Kernel):
    plan = torch.zeros(2, dtype=torch.int64)
    for count in (1, 2, 44, 132, 1056, 1 << 20):
        for cols in (1, 8, 768, 24576, 1 << 30):
            plans.column_sums_plan(count, cols, plan)
            across, slices = plan.tolist()
            assert across in (8, 16, 32)
            assert across * slices <= 512


def test_narrow_rows_share_warps_and_leave_few_partial_sums(plans: Kernel):
    """A block leaves one sum of each column, however many rows its threads have at a time."""
    plan = torch.zeros(3, dtype=torch.int64)
    for cols, across in ((1, 1), (2, 2), (5, 8), (17, 32), (33, 32), (1 << 30, 32)):
        for rows in (1, 7, 40482, 1 << 30):
            plans.slices_plan(rows, cols, plan)
            columns, slices, count = plan.tolist()
            assert (columns, columns * slices) == (across, 256)
            assert 1 <= count <= max(1, 8 * (os.cpu_count() or 1))
            assert count <= -(-rows // slices)


def test_few_rows_of_float8_fill_their_waves(plans: Kernel):
    for units in (64, 768, 4096, 8448, 12288, 55296, 1 << 30):
        for rows in (1, 16, 32, 40, 64):
            assert plans.few_float8_rows(rows, units, 0, H200), (rows, units)
        assert not plans.few_float8_rows(65, units, 0, H200)
    assert not plans.few_float8_rows(62, 9216, 0, H200)  # 144 tiles for 132 multiprocessors
    assert plans.few_float8_rows(62, 9216, 1, H200)
    assert plans.few_float8_rows(32, 9216, 0, H200)


# The kernels for 65 to 1024 rows: their rows by units and splits.
FEW_ROWS_KERNELS = {
    (64, 1): {64, 96, 128, 160},
    (64, 2): {64, 96, 128, 160},
    (128, 1): {96, 112, 128, 144, 160, 192, 224, 256},
    (128, 2): {96, 112, 128, 144, 160},
}


def test_few_rows_have_a_plan_that_covers_them(plans: Kernel):
    """Each row of x is in a tile of a kernel that exists, and each kernel is used by a product."""
    plan, draw, used = torch.zeros(4, dtype=torch.int64), random.Random(4), set()
    for _ in range(4000):
        batch, rows = draw.choice((1, 1, 7)), draw.randint(65, 1024)
        wide, depth = (8 * round(2 ** draw.uniform(0, 13)) for _ in range(2))
        processors = draw.choice((1, 2, 78, H200))
        plans.few_rows_plan_of(batch, rows, wide, depth, processors, plan)
        units, of_kernel, tiles, splits = plan.tolist()
        if depth < 512:
            assert units == 0
            continue
        assert of_kernel in FEW_ROWS_KERNELS[units, splits], (rows, wide, depth)
        assert tiles * of_kernel >= rows > (tiles - 1) * -(-rows // tiles)
        assert splits <= processors
        used.add((units, splits, of_kernel))
    assert used == {(*key, rows) for key, every in FEW_ROWS_KERNELS.items() for rows in every}


def smallest_of_few_rows(plans: Kernel, key: tuple[int, int], of_kernel: int) -> tuple[int, ...]:
    """Rows, units and depth of a product that uses this kernel here; skips if there is none."""
    if DEVICE.type == "cuda":
        blocks, most = torch.cuda.get_device_properties(DEVICE).multi_processor_count, 5e9
    else:
        blocks, most = max(2, os.cpu_count() or 1), 6e7  # multiply-adds
    plan, shapes = torch.zeros(4, dtype=torch.int64), []
    for tiles, less, depth in itertools.product(range(1, 8), (3, 15), (520, 1032, 2056, 4104)):
        for columns in {*range(1, 10), *range(blocks // 8, blocks + 1, 1 + blocks // 32)}:
            shapes.append((tiles * of_kernel - less, max(columns, 1) * key[0] - 24, depth))
    for shape in sorted(shapes, key=math.prod):
        if 64 < shape[0] <= 1024 and math.prod(shape) <= most:
            plans.few_rows_plan_of(1, *shape, blocks, plan)
            units, rows, _, splits = plan.tolist()
            if (units, splits, rows) == (*key, of_kernel):
                return shape
    pytest.skip(f"{blocks} multiprocessors use this kernel for large products only")


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        pytest.param(key, rows, marks=[pytest.mark.slow] * (rows not in (96, 160, 256)))
        for key, every in FEW_ROWS_KERNELS.items()
        for rows in sorted(every)
    ],
    ids=str,
)
def test_each_kernel_for_few_rows(plans: Kernel, key: tuple[int, int], rows: int):
    rows, units, depth = smallest_of_few_rows(plans, key, rows)
    for options in ({"act": "gelu"}, {"act": "swiglu"}, {"residual": None}):
        case = Case(OP, VERSIONS[-1], options)
        given = OP.inputs(rows, depth, torch.bfloat16, DEVICE, without=options, units=units)
        given["w"] = given["w"] / depth**0.5
        if options.get("act") == "swiglu":
            given["residual"] = given["residual"][:, : units // 2].contiguous()
        if "residual" in options:  # a w by column has a kernel of its own
            given["w"] = given["w"].mT.contiguous().mT
        assert_close_to_pytorch(case, given)


CONVERT_FIRST, NARROW, WIDE, TALL = range(4)


def test_weights_of_int8_are_converted_where_that_is_fastest(plans: Kernel):
    """The fastest of four, as measured on an H200; seconds are those of a model."""
    fastest = {
        (1024, 896, 4864): WIDE,
        (384, 576, 1536): NARROW,
        (512, 4096, 14336): WIDE,
        (512, 28672, 4096): TALL,
        (128, 28672, 4096): WIDE,
        (1024, 2048, 16384): CONVERT_FIRST,
        (1000, 2880, 2880): CONVERT_FIRST,
    }
    assert {shape: plans.int8_plan_of(*shape, 0, H200) for shape in fastest} == fastest
    assert plans.int8_plan_of(1 << 20, 8192, 8192, 0, H200) == CONVERT_FIRST


def test_any_product_of_int8_has_a_plan(plans: Kernel):
    draw = random.Random(3)
    for _ in range(2000):
        shape = tuple(round(2 ** draw.uniform(0, 30)) for _ in range(3))
        by_block, processors = draw.randrange(2), draw.choice((1, 2, 78, H200))
        plan = plans.int8_plan_of(*shape, by_block, processors)
        assert plan in (CONVERT_FIRST, NARROW, WIDE, TALL)
        assert plan != TALL or not by_block, shape
        assert plan != NARROW or processors > 1, shape


def test_few_rows_are_spread_over_the_multiprocessors(plans: Kernel):
    for rows, most, expected in ((1, 4, 1), (131, 4, 1), (300, 4, 2), (600, 4, 4), (9999, 4, 4)):
        assert plans.rows_of_block(rows, most, H200) == expected, rows
