"""Cluster launch control: clusterlaunchcontrol.try_cancel and query_cancel.

On the simulator alone: it is for compute capability 10.0.
"""

import pytest
import torch
from simulated import Kernels

import lab

GRIDS = [(1, 1, 1), (5, 1, 1), (4, 3, 2), (41, 29, 1)]


@pytest.fixture(scope="module")
def kernels():
    return Kernels("launch_control", "cpu")


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_work_of_each_block_is_done_once(kernels, grid):
    y, ran = kernels.zeros(*grid[::-1]), kernels.zeros(*grid[::-1])
    kernels.blocks(y, ran, *grid)
    assert y.eq(1).all()
    assert ran[0, 0, 0] == 1
    assert ran.sum() < max(ran.numel(), 2)  # others have taken their place


@pytest.mark.parametrize("grid", [(2, 2), (6, 4), (12, 22)], ids=str)
def test_the_work_of_each_cluster_is_done_once(kernels, grid):
    y, ran = kernels.zeros(*grid[::-1]), kernels.zeros(*grid[::-1])
    kernels.clusters(y, ran, *grid, 1)
    assert y.eq(1).all()
    of_clusters = ran.view(grid[1] // 2, 2, grid[0] // 2, 2)
    assert torch.equal(of_clusters.amax((1, 3)), of_clusters.amin((1, 3)))
    assert ran.sum() < max(ran.numel(), 5)


@pytest.mark.parametrize("name", ["blocks", "clusters"])
@pytest.mark.parametrize(
    ("order", "across"), [(0, 6), (1, 6), (2, 6), pytest.param(0, 40, id="one takes many")]
)
def test_the_checker_finds_nothing(kernels, name, order, across):
    y, ran = kernels.zeros(8, across), kernels.zeros(8, across)
    report = lab.check(getattr(kernels, name), y, ran, across, 8, 1, thread_order=order)
    assert report.findings.empty, str(report)


@pytest.mark.parametrize("asks", [0, 1])
def test_what_is_undefined_after_a_refusal(kernels, asks):
    with pytest.raises(RuntimeError, match="undefined" if asks else "has no block"):
        kernels.wrong(kernels.zeros(1), asks)
