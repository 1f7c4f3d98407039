"""What a person sees of an error: the own line, what was wrong, and none of the loader's frames."""

import re
import signal
import subprocess
import sys

import pytest
import torch
from jit_cases import answer, compilers_in, load, wait_for, write
from tracebacks_shown import files_shown, shown_by_ipython, shown_by_python

from jitloader import handle

pytestmark = pytest.mark.usefixtures("in_scratch")

ADD = """
    __global__ void add_one(const float* x, float* y, int n) {
        for (int i = 0; i < n; ++i) y[i] = x[i] + 1;
    }
    extern "C" void add(const float* x, float* y, int n) { add_one<<<1, 1>>>(x, y, n); }
"""


CALLS = [
    pytest.param(
        """
        import jitload, torch
        kernel = jitload.load("add.cu", target="cpu")
        kernel.add(torch.ones(3), torch.ones(3, dtype=torch.float64), 3)
        """,
        "TypeError: add: y is torch.float64; wanted torch.float32",
        id="a C function",
    ),
    pytest.param(
        """
        import jitload, torch
        kernel = jitload.load("add.cu", target="cpu")
        kernel.subtract(torch.ones(3), torch.ones(3), 3)
        """,
        "AttributeError: kernel 'add' has no function 'subtract'; it has: add",
        id="a function that is missing",
    ),
    pytest.param(
        """
        import torch
        from kernels.square import kernel, square
        square(torch.ones(3, dtype=torch.int32, device=kernel.target))
        """,
        "RuntimeError: x is int32; wanted",
        id="an op",
    ),
    pytest.param(
        """
        import jitload
        jitload.load("nothing.cu", target="cpu")
        """,
        "FileNotFoundError: no source",
        id="load",
    ),
    pytest.param(
        """
        import jitload
        jitload.load("wrong.cu", target="cpu")
        """,
        "CompileError: ",
        id="a broken source",
    ),
]


# What is shown is decided for both alike, so that each call is tried in one; the last in both.
@pytest.mark.parametrize(("code", "message"), CALLS[::2])
def test_plain_python_shows_the_users_frames_and_the_message(code, message):
    write("add.cu", ADD)
    answer("oops", "wrong")
    lines = shown_by_python(code)
    assert "Traceback (most recent call last):" in lines
    assert files_shown(lines) == {"script.py"}
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize(("code", "message"), [*CALLS[1::2], CALLS[-1]])
def test_a_notebook_shows_the_users_frames_and_the_message(code, message):
    write("add.cu", ADD)
    answer("oops", "wrong")
    lines = shown_by_ipython(code)
    assert not files_shown(lines)
    assert any(line.lstrip().startswith(message) for line in lines), lines
    if message != "CompileError: ":
        assert any("---->" in line for line in lines), "the cell's own line"


def test_a_formula_of_the_users_is_shown_between_frames_that_are_not():
    from kernels.square import square  # noqa: F401 - its kernel is built

    lines = shown_by_python(
        """
        import jitload, torch
        kernel = jitload.load("square", target="cpu")

        def backward(ctx, grad):
            return grad + undefined

        kernel.register_autograd("forward", backward)
        kernel.forward(torch.ones(2, requires_grad=True), 1).sum().backward()
        """
    )
    assert lines[-1] == "NameError: name 'undefined' is not defined"
    assert any("in backward" in line and "script.py" in line for line in lines)
    assert not {"jitload.py", "gradients.py"} & files_shown(lines)


@pytest.mark.slow
def test_development_mode_shows_all_frames():
    write("add.cu", ADD)
    path = write("script.py", CALLS[0].values[0])
    command = [sys.executable, "-X", "dev", "-W", "ignore", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120).stderr
    assert files_shown(said.splitlines()) >= {"script.py", "functions.py", "cfunctions.py"}


def test_debuggers_and_callers_have_the_whole_traceback():
    write("add.cu", ADD)
    kernel = load("add.cu")
    with pytest.raises(TypeError) as caught:
        kernel.add(torch.ones(3), [1.0], 3)
    names = [entry.name for entry in caught.traceback]
    assert "__call__" in names
    assert names[-1] == "_pointer"


INTERRUPTED = """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import jitload
    jitload.load("slow.cu", "slow.cpp", target="cpu")
"""


@pytest.mark.parametrize(
    "shell",
    [
        "python",
        pytest.param("ipython", marks=pytest.mark.slow),
        pytest.param("python -m jitload build", marks=pytest.mark.slow),
    ],
)
def test_a_build_that_is_stopped_says_so_in_one_line(tmp_path, shell, monkeypatch):
    """Which ends plain Python as an interrupt does, so that loops of a shell end, too."""
    write("slow.cpp", "#include <torch/extension.h>\nint x;")
    answer(3, "slow")
    program = write("script.py", INTERRUPTED).read_text()
    if shell == "ipython":
        program = (
            "from IPython.core.interactiveshell import InteractiveShell\n"
            f"InteractiveShell.instance(colors='nocolor').run_cell({program!r})"
        )
    elif shell != "python":
        program = (
            "import signal\nfrom pathlib import Path\nfrom jitloader import arguments, commands\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "arguments.KERNELS = Path.cwd()\ncommands.build(['slow'], 'cpu')"
        )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: compilers_in(tmp_path), "the compiler to start")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    text = re.sub(r"\x1b\[[\d;]*m", "", out + err)
    assert "KeyboardInterrupt: the build of slow was interrupted" in text
    assert "Traceback" not in text
    assert " File " not in text
    assert len(text.strip().splitlines()) <= 3, text
    assert process.returncode == (0 if shell == "ipython" else -signal.SIGINT)
    wait_for(lambda: not compilers_in(tmp_path), "the compiler, which was killed, to be gone", 5)


def test_an_interrupt_stays_what_callers_catch(monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("toolchain.compile.compile_library", stopped)
    with pytest.raises(KeyboardInterrupt) as caught:
        load(answer(1, "stopped"))
    assert caught.type is KeyboardInterrupt
    assert caught.value._render_traceback_() == [
        "KeyboardInterrupt: the build of stopped was interrupted"
    ]
    assert handle._kernels
