"""The ladder of matrix products for Blackwell (docs/programs/blackwell), whole kernels."""

import pytest

import lab
from docs.programs.blackwell_ladder import RUNGS, resources_of

# Of a float32 sum that is cut off once for each product of the tensor cores.
LIMIT = 2**-23
SHAPES = [(512, 256, 256), (1024, 512, 512)]


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_is_right(cache, rung):
    function = rung.load("cpu")
    for m, n, k in SHAPES:
        arguments, c, truth = rung.drawn(m, n, k)
        function(*arguments)
        assert (c.double() - truth).norm() <= LIMIT * k / 16 * truth.norm()


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_nothing_is_found_in_a_rung(cache, rung):
    function = rung.load("cpu")
    for order in (0, 1):
        arguments, *_ = rung.drawn(512, 256, 512)
        report = lab.check(function, *arguments, thread_order=order)
        assert report.findings.empty, str(report)


@pytest.mark.parametrize("file", sorted({rung.file for rung in RUNGS}))
def test_a_rung_compiles_for_a_gpu_without_spills(file):
    used = resources_of(file)
    assert used
    assert [(use.architecture, use.spilled) for use in used] == [("sm_100a", 0)] * len(used)
