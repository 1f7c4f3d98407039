"""Figures of tensor memory. Where things lie is held against the simulator in tests/simulator."""

import itertools

import numpy
import pytest

import lab
from lab.figure import tensor_memory


def texts(figure, panel: int = 0) -> dict[str, tuple[float, float]]:
    """What is written in a panel, and in which column and row."""
    return {
        it.get_text(): (it.get_position()[0], it.get_position()[1])
        for it in figure.axes[panel].texts
    }


@pytest.mark.parametrize("shape", ["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_access_is_drawn_where_its_registers_are(shape, packed):
    found = texts(lab.plot_tensor_access(f"{shape}.x2", packed, warp=1))
    registers = 2 * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    assert len(found) == 32 * registers * (1 + packed)
    for thread, register in itertools.product(range(32), range(registers)):
        lane, column = tensor_memory.register_place(shape, thread, register, 2)
        if packed:
            assert found[f"t{thread}.r{register}l"] == (2 * column + 0.5, lane + 0.5)
            assert found[f"t{thread}.r{register}h"] == (2 * column + 1.5, lane + 0.5)
        else:
            assert found[f"t{thread}.r{register}"] == (column + 0.5, lane + 0.5)


@pytest.mark.parametrize(
    ("m", "cta_group", "ws"),
    [(64, 1, 0), (128, 1, 0), (128, 2, 0), (256, 2, 0), (32, 1, 1), (64, 1, 1), (128, 1, 1)],
)
def test_an_accumulator_is_drawn_once(m, cta_group, ws):
    figure = lab.plot_accumulator(m, 32, cta_group, bool(ws))
    drawn = {
        (block, int(lane), int(column), int(cells[lane, column]))
        for block in range(cta_group)
        for cells in [figure.axes[block].images[0].get_array().filled(numpy.nan)]
        for lane, column in numpy.argwhere(numpy.isfinite(cells))
    }
    wanted = {
        (*tensor_memory.accumulator_place(m, 32, row, column, cta_group, bool(ws)), row)
        for row, column in itertools.product(range(m), range(32))
    }
    assert drawn == wanted
    assert len(wanted) == m * 32
    assert "rows 0 to" in " ".join(texts(figure))


def test_scale_factors_are_drawn_where_they_are():
    figure = lab.plot_scales(scale_vec=2, scale_id=2)
    shared, quarter = texts(figure), texts(figure, 1)
    for row, k in itertools.product(range(128), range(4)):
        at = tensor_memory.scale_place(row, k)
        assert shared[f"{row},{k}"] == (at.offset % 16 + 0.5, at.offset // 16 + 0.5)
        assert quarter[f"{row},{k}"] == (4 * at.column + at.byte + 0.5, at.lane + 0.5)
    dark = {(it.get_x(), it.get_y()) for it in figure.axes[2].patches if it.get_facecolor()[3] == 1}
    wanted = itertools.product(range(4), (2, 3), range(128))
    assert dark == {(4 * column + byte, lane) for column, byte, lane in wanted}


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: lab.plot_tensor_access("8x8b.x1"), "is no shape"),
        (lambda: lab.plot_tensor_access("32x32b"), "with .x and repetitions"),
        (lambda: lab.plot_accumulator(256), "not 256"),
        (lambda: lab.plot_accumulator(32), "not 32"),
        (lambda: lab.plot_accumulator(128, cta_group=2, ws=True), ".ws is for cta_group::1"),
        (lambda: lab.plot_scales(2, 1), "multiple of it"),
    ],
)
def test_what_does_not_exist_is_refused(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
