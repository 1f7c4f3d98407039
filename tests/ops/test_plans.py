"""Which launches are chosen for a shape, of shapes up to the limits, without a GPU."""

import random
from pathlib import Path

import pytest
import torch

import jitload
from jitloader.handle import Kernel

H200 = 132  # multiprocessors
TILES = {64: (128, 128), 128: (128, 64), 256: (64, 64)}  # keys of a tile and rows of a step


@pytest.fixture(scope="module")
def plans() -> Kernel:
    source = Path(__file__).parent / "kernels/plans.cu"
    include = [str(folder) for folder in (*jitload.op_folders(), jitload.KERNELS / "include")]
    return jitload.load(source, target="cpu", include=include)


def blocks_and_steps(
    batches: int, heads: int, rows: int, kv_heads: int, keys: int, cols: int
) -> tuple[int, int]:
    """Blocks that have a tile of keys each, and the steps of a tile that all rows see."""
    of_keys, of_rows = TILES[cols]
    return batches * kv_heads * -(-keys // of_keys), heads // kv_heads * -(-rows // of_rows)


def test_blocks_share_keys_where_multiprocessors_would_idle(plans: Kernel):
    for cols in TILES:
        for causal in (0, 1):
            for heads, kv_heads in ((12, 1), (8, 1), (12, 3), (71, 1)):
                shape = 1, heads, 4096, kv_heads, 4096, cols
                splits = plans.attention_splits(*shape, causal, H200)
                blocks, _ = blocks_and_steps(*shape)
                assert blocks * splits > 0.7 * H200, (shape, splits)
            assert plans.attention_splits(16, 32, 4096, 8, 4096, cols, causal, H200) == 1


def test_blocks_that_share_keys_have_work_and_room(plans: Kernel):
    draw = random.Random(0)
    for _ in range(2000):
        cols, kv_heads = draw.choice([*TILES]), draw.choice((1, 2, 3, 8, 71))
        rows, keys, batches = (round(2 ** draw.uniform(0, most)) for most in (20, 20, 12))
        heads = kv_heads * draw.choice((1, 2, 4, 7, 48))
        shape = batches, heads, rows, kv_heads, keys, cols
        splits = plans.attention_splits(*shape, draw.randrange(2), H200)
        blocks, steps = blocks_and_steps(*shape)
        assert 1 <= splits <= steps, shape
        partial_sums = 2 * 4 * blocks * splits * TILES[cols][0] * cols  # bytes
        assert splits == 1 or partial_sums <= 160 << 20, shape


def test_rows_of_any_width_fill_their_threads(plans: Kernel):
    plan = torch.zeros(3, dtype=torch.int64)
    for cols in (0, 1, 2, 3, 10, 17, 100, 1000, 50257, 1 << 40):
        for rows in (1, 3, 62116, 1 << 33):
            plans.any_width(rows, cols, plan)
            threads, rows_each, blocks = plan.tolist()
            assert 128 <= threads * rows_each <= 512
            assert 2 <= threads <= max(cols, 2)
            assert 1 <= blocks <= 2**31 - 1


def test_partial_sums_have_blocks_that_exist(plans: Kernel):
    plan = torch.zeros(2, dtype=torch.int64)
    for count in (1, 2, 44, 132, 1056, 1 << 20):
        for cols in (1, 8, 768, 24576, 1 << 30):
            plans.column_sums_plan(count, cols, plan)
            across, slices = plan.tolist()
            assert across in (8, 16, 32)
            assert across * slices <= 512
