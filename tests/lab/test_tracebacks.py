"""What a person sees of an error in the lab: the own lines, and none of the project's frames."""

import re

import pytest
from jit_cases import write
from tracebacks_shown import files_shown, shown_by_ipython, shown_by_python

import jitload
from jitloader import tracebacks

pytestmark = pytest.mark.usefixtures("in_scratch")

KERNEL = """
    __global__ void sigmoid(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 1 / (1 + expf(-x[i]));
    }
"""
COMPARED = """
    import jitload, lab, torch

    mine = jitload.load("mine.cu", target="cpu")

    def sigmoid(x):
        y = torch.empty_like(x)
        {line}
        return y

    lab.compare_calls({{"mine": sigmoid, "torch": torch.sigmoid}}, inputs=torch.ones(9))
"""
# The code, the last line but for notes, and the functions of one's own on the way there.
CALLS = [
    pytest.param(
        'import lab\nlab.compare("add")', "ValueError: op: there is no 'add'", [], id="no such op"
    ),
    pytest.param(
        'import lab\nlab.plot_error("square", shape=5)',
        "ValueError: shape: 5 is no pair",
        [],
        id="a wrong argument of a figure",
    ),
    pytest.param(
        "import jitload, lab\nlab.compere",
        "AttributeError: module 'lab' has no attribute 'compere'",
        [],
        id="no such instrument",
    ),
    pytest.param(
        COMPARED.format(line="mine.sigmoid(x, y, x.numel())"),
        "TypeError: ",
        ["mine.sigmoid(x, y", "sigmoid"],
        id="a kernel without its grid",
    ),
    pytest.param(
        COMPARED.format(line="return x + undefined"),
        "NameError: name 'undefined' is not defined",
        ["x + undefined", "sigmoid"],
        id="a mistake in a function of one's own",
    ),
    pytest.param(
        """
        import lab

        def fails(x):
            return x + undefined

        lab.check(fails, 3)
        """,
        "NameError: name 'undefined' is not defined",
        ["x + undefined", "fails"],
        id="a mistake in a function that is checked",
    ),
    pytest.param(
        """
        import torch
        from kernels.square import square

        square(torch.ones(2, 3), version="fastest")
        """,
        "ValueError: ",
        [],
        id="a wrong argument of an op",
    ),
]


# What is shown is decided for both alike, so that each call is tried in one; the last in both.
@pytest.mark.parametrize(("code", "message", "own"), CALLS[::2])
def test_plain_python_shows_the_users_frames_alone(code, message, own):
    write("mine.cu", KERNEL)
    lines = shown_by_python(code)
    assert files_shown(lines) == {"script.py"}
    assert any(line.startswith(message) for line in lines), lines
    for text in own:
        assert any(text in line for line in lines), lines


@pytest.mark.parametrize(("code", "message", "own"), [*CALLS[1::2], CALLS[-1]])
def test_a_notebook_shows_the_users_frames_alone(code, message, own):
    write("mine.cu", KERNEL)
    lines = shown_by_ipython(code)
    assert not files_shown(lines)
    assert any(line.startswith(message) for line in lines), lines
    assert sum(bool(re.match("-+> ", line)) for line in lines) == 1 + bool(own)
    for text in own:
        assert any(text in line for line in lines), lines
    assert len(lines) < 40


def test_errors_that_led_to_one_are_shown_so_too():
    code = """
        import lab
        try:
            lab.compare("add")
        except ValueError as error:
            raise RuntimeError("no table") from error
    """
    for shown in shown_by_python, shown_by_ipython:
        lines = shown(code)
        assert files_shown(lines) <= {"script.py"}
        assert any("ValueError: op: there is no 'add'" in line for line in lines)
        assert any("RuntimeError: no table" in line for line in lines)


@pytest.mark.parametrize(
    ("room", "line", "is_shown"),
    [
        ("lab", "raise ValueError('rows: wanted is one')", False),
        ("lab", "None.rows", True),
        ("lab", "import json; json.loads('{')", True),  # nor does the other library's frame
        ("kernels", "raise ValueError('rows: wanted is one')", False),
        ("kernels", "None.rows", True),
        ("jitloader", "None.rows", False),
    ],
)
def test_a_mistake_in_a_module_shows_its_frames_and_an_answer_to_the_call_does_not(
    room, line, is_shown
):
    """An op's module is one that its author edits."""
    path = jitload.KERNELS.parent / room / "edited.py"
    code = f"def inner():\n    {line}\n\ndef outer():\n    inner()\n"
    own = {}
    exec(compile(code, str(path), "exec"), own)
    with pytest.raises(Exception, match=r".") as caught:
        own["outer"]()
    shown = tracebacks._shown(caught.tb)
    names = []
    while shown:
        names.append(shown.tb_frame.f_code.co_name)
        shown = shown.tb_next
    assert names[1:3] == (["outer", "inner"] if is_shown else [])
