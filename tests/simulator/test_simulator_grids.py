"""Cooperative grids: blocks that run at once, wait for each other, and go wrong together."""

from pathlib import Path

import pytest
from simulated import fixture, line_of, message_of, on_simulator_alone

from tests.helpers.interrupts import interrupted_after

SOURCE = Path(__file__).parent / "kernels" / "grids.cu"
grids = fixture("grids")


@pytest.mark.parametrize(("blocks", "threads"), [(1, 32), (2, 33), (8, 128), (12, 64)])
def test_blocks_wait_for_each_other(grids, blocks, threads):
    y, total = grids.zeros(blocks * threads), grids.zeros(1)
    for _ in range(3):
        grids.rounds(y, total, 4, blocks, threads)
    assert y.eq(2**4).all()
    assert total.item() == 3 * 2**4 * blocks * threads


def test_a_block_may_arrive_and_wait_later(grids):
    y = grids.zeros(4 * 64)
    grids.split(y, 4, 64)
    expected = [(block + 2) * 10 + 1 for block in range(4) for _ in range(64)]
    assert y.tolist() == expected


def test_a_grid_knows_its_shape(grids):
    y = grids.zeros(72, 6)
    grids.shape(y)
    expected = []
    for block in range(12):
        bx, by, bz = block % 2, block // 2 % 3, block // 6
        for thread in range(6):
            x, row = bx * 3 + thread % 3, by * 2 + thread // 3
            expected.append([block, x + 100 * row + 10000 * bz, 6 + 600 + 20000, 1272, by + 30])
    assert y[:, :5].tolist() == expected
    if grids.device.type == "cpu":  # a GPU calls a grid valid after any that was cooperative
        assert not y[:, 5].any()


def test_blocks_that_wait_for_each_other_in_any_launch(grids):
    y = grids.zeros(12)
    grids.by_hand(y, 6)
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0]


def test_only_as_many_blocks_as_run_at_once(grids):
    assert grids.cooperates() == 1
    most = grids.most(1024)
    y, total = grids.zeros((most + 1) * 1024), grids.zeros(1)
    grids.rounds(y, total, 1, most, 1024)
    assert total.item() == 2 * most * 1024
    message = message_of(grids.rounds, y, total, 1, most + 1, 1024)
    assert "too many blocks" in message or f"{most + 1} blocks" in message


def test_a_barrier_of_a_grid_that_was_not_launched_for_it(grids):
    on_simulator_alone(grids)
    message = message_of(grids.plain, grids.zeros(1))
    assert line_of(SOURCE, "// plain") in message
    assert "cudaLaunchCooperativeKernel" in message


@pytest.mark.parametrize("who", [0, 2])
def test_a_block_that_has_returned_is_told(grids, who):
    on_simulator_alone(grids)
    message = message_of(grids.returns, grids.zeros(4), who, 4)
    assert "kernel returns" in message
    assert "3 of 4 blocks wait" in message
    assert f"{line_of(SOURCE, 'for those that returned')}: grid_group::sync: 3 blocks" in message
    assert f"returned: 1 block (({who}, 0, 0))" in message
    grids.split(grids.zeros(256), 4, 64)


def test_a_block_that_fails_ends_the_waiting(grids):
    on_simulator_alone(grids)
    message = message_of(grids.fails, grids.zeros(4))
    assert "block (1, 0, 0)" in message
    assert "__trap" in message


def test_an_interrupt_finds_the_block_that_runs(grids):
    on_simulator_alone(grids)
    with interrupted_after(0.3) as since:
        with pytest.raises(KeyboardInterrupt) as caught:
            grids.spins(grids.zeros(1))
        assert since() < 20
    assert "block (0, 0, 0)" in str(caught.value)
    grids.split(grids.zeros(256), 4, 64)


def test_a_tile_waits_for_its_warps_and_not_for_threads_that_returned(grids):
    y = grids.zeros(128)
    grids.leaves_a_tile(y, -1)
    assert y.tolist() == [0 if i in (70, 71) else 1 for i in range(128)]


def test_a_warp_that_has_returned_never_comes_to_its_tile(grids):
    on_simulator_alone(grids)
    message = message_of(grids.leaves_a_tile, grids.zeros(128), 1)
    assert "32 of 128 threads wait" in message
    assert (
        f"{line_of(SOURCE, '// two warps')}: thread_block_tile::sync: 32 threads (0-31)" in message
    )


def test_tiles_of_three_threads(grids):
    on_simulator_alone(grids)
    message = message_of(grids.thirds, grids.zeros(1))
    assert f"{line_of(SOURCE, '// of three')}: thread 0: tiled_partition" in message
    assert "1, 2, 4, 8, 16 or 32" in message


@pytest.mark.parametrize(("at", "size", "word"), [(1, 8, "multiples"), (0, 12, "4, 8 or 16")])
def test_what_is_not_copied_asynchronously(grids, at, size, word):
    on_simulator_alone(grids)
    y = grids.zeros(8)
    grids.copies(y, 1, 4)
    message = message_of(grids.copies, y, at, size)
    assert f"{line_of(SOURCE, '// wherever')}: thread 0: __pipeline_memcpy_async" in message
    assert word in message
