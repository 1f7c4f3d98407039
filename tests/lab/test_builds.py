"""lab.compare_builds: two builds of one kernel in one picture."""

import pytest
import torch
from jit_cases import write
from matplotlib.figure import Figure

import jitload
import lab

SOURCE = """
    __global__ void kernel(const float* x, float* y, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * 2 + OFFSET;
    }
    extern "C" void twice(const float* x, float* y, int n) {
        kernel<<<(n + 63) / 64, 64>>>(x, y, n);
    }
"""


def twice(build, x):
    y = torch.empty_like(x)
    build.twice(x, y, x.numel())
    return y


@pytest.fixture
def kernel(in_scratch):
    """Two builds: the earlier one is wrong by a millionth, the newest is right."""
    write("twice.cu", SOURCE.replace("OFFSET", "1e-6f"))
    kernel = jitload.load("twice.cu", target="cpu")
    write("twice.cu", SOURCE.replace(" + OFFSET", ""))
    assert kernel.reload()
    return kernel


def test_error_and_time_of_two_builds_stand_beside_each_other(kernel, tmp_path):
    x = torch.rand(1000)
    figure = lab.compare_builds(kernel, call=twice, reference=lambda x: 2 * x, inputs=[x])
    assert isinstance(figure, Figure)
    error, *times = figure.axes
    labels = [text.get_text() for text in error.get_yticklabels()]
    digests = [version.digest[:8] for version in reversed(kernel.builds())]
    assert [label.split(",")[0] for label in labels] == digests
    largest = error.collections[0].get_offsets()[:, 0]
    assert largest[0] > 1
    assert largest[1] == 0
    assert times == [], "the simulator's time says nothing of a GPU's"
    assert "no GPU, so no time" in figure.get_supxlabel()
    assert "float32 1000" in figure.get_supxlabel()


def test_an_op_of_the_project_knows_its_reference_and_its_inputs(cache, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(cache))  # not what somebody built last of square
    kernel = jitload.load("square")
    figure = lab.compare_builds(kernel, [0], call=lambda build, x: build.forward(x, 0))
    assert figure.get_suptitle() == "square: build against build"


def test_a_kernel_that_is_no_op_needs_a_reference(kernel):
    with pytest.raises(ValueError, match="'twice'"):
        lab.compare_builds(kernel, call=twice)


@pytest.mark.parametrize(
    ("versions", "call", "error", "says"),
    [
        ([], twice, ValueError, "builds: the list is empty"),
        ([7], twice, LookupError, "build 7 of twice"),
        ([0], lambda build, x: (x, x), ValueError, "call: returned 2 tensors, the reference 1"),
    ],
)
def test_wrong_arguments(kernel, versions, call, error, says):
    with pytest.raises(error, match=says):
        lab.compare_builds(
            kernel, versions, call=call, reference=lambda x: 2 * x, inputs=[torch.ones(3)]
        )
