"""`python -m lab.bench --random` without a GPU: what it draws, and what it says of the figures."""

from collections import Counter
from functools import cache

import pytest
import torch

from lab.bench import distribution, random_products
from lab.bench.random_products import OPS, drawn
from lab.bench.table import CONDITIONS


@cache
def cells() -> list:
    return [drawn(7, number, OPS) for number in range(400)]


def test_a_cell_is_drawn_from_the_seed_and_its_number_alone():
    again = [drawn(7, number, OPS) for number in range(399, 389, -1)]
    assert list(map(str, again)) == list(map(str, cells()[:389:-1]))
    assert str(drawn(8, 0, OPS)) != str(cells()[0])


def test_every_op_is_drawn_with_few_rows_and_many_and_with_odd_sizes():
    assert Counter(cell.name for cell in cells()).keys() == set(OPS)
    assert min(cell.rows for cell in cells()) < 4
    assert max(cell.rows for cell in cells()) > 20_000
    assert any(cell.rows % 2 and cell.rows > 16 for cell in cells())
    assert any(cell.cols % 8 and cell.cols > 256 for cell in cells())
    assert {cell.direction for cell in cells()} == {"forward", "backward", "both"}
    assert {cell.dtype for cell in cells()} >= {torch.float32, torch.float16, torch.bfloat16}


def test_no_cell_is_larger_than_a_gpu():
    for cell in cells():
        assert cell.operations < 5e13, cell
        if isinstance(cell, random_products.Rows):
            assert cell.rows * cell.cols <= random_products.ELEMENTS, cell
        tensors = cell.shapes.values()
        assert sum(torch.Size(shape).numel() for shape in tensors) < 5 * random_products.ELEMENTS


@pytest.mark.parametrize("op", OPS)
def test_what_is_drawn_of_an_op_can_be_computed(op):
    """The smallest of its cells, by the rival that everybody has."""
    smallest = min(
        (drawn(7, number, [op]) for number in range(60)),
        key=lambda cell: cell.operations or cell.rows * cell.cols,
    )
    largest = max((torch.Size(shape).numel() for shape in smallest.shapes.values()), default=0)
    if smallest.operations > 1e10 or smallest.rows * smallest.cols > 1e7 or largest > 1e8:
        pytest.skip("too much for a CPU")
    case = smallest.case()
    assert case.inputs
    assert all(tensor.dtype != torch.float64 for tensor in case.inputs.values())
    assert smallest.columns()["number"] == smallest.number


def measured(percents: list[float]) -> list[dict[str, object]]:
    lines = []
    for cell, percent in zip(cells(), percents, strict=False):
        common = cell.columns() | {"clock": "turns", "run": "2030-01-02 03:04"}
        common |= dict.fromkeys(CONDITIONS, "known")
        for label, time_us in {"ours": 50.0, "eager": 90.0, "compile": percent / 2}.items():
            lines.append(common | {"implementation": label, "time_us": time_us, "failure": None})
    return lines


def test_the_distribution_is_that_of_the_best_rivals_share_of_our_time():
    table = distribution.shares(measured([50, 95, 98, 120, 150])).assign(seed=7, of=5, ops="all")
    assert table["percent"].tolist() == [50, 95, 98, 120, 150]
    *_, total = distribution.summary(table).splitlines()
    assert total == "| all | 5 | 50 | 68 | 98 | 2 | 1 |"
    first = distribution.worst(table).splitlines()[2]
    assert "| 50 | `python -m lab.bench --random 5 --seed 7 --cell 0` |" in first


def test_a_draw_that_is_measured_again_takes_the_place_of_its_figures(tmp_path):
    path = tmp_path / "random.csv"
    for percents in ([50, 95], [60, 96, 97]):
        new = distribution.shares(measured(percents)).assign(seed=7, of=3, ops="all")
        written = list(distribution.publish(path, new, "command"))
    assert all(each.stat().st_size for each in written)
    table = distribution.join(path, new)
    assert table["percent"].tolist() == [60, 96, 97]
    assert "| all | 3 | 60 |" in path.with_suffix(".md").read_text()
