"""%load_ext lab: kernels follow their files from cell to cell, and %%cu makes a kernel of a cell.

Sources without a kernel compile in a fraction of a second, and follow their files like any other.
"""

import builtins
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

import jitload

pytest.importorskip("IPython", reason="IPython is not installed")
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from jit_cases import ENDLESS, answer, compilers_in, wait_for, write

from lab.notebook.cu_magic import Output
from lab.notebook.errors import log_of
from tests.helpers.counted import calls_in

SCALE = """
    __global__ void scale(const float* x, float* y, int n, float factor) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * factor;
    }

    extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
        scale<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n, FACTOR);
        return cudaGetLastError();
    }
"""
BINDING = """
    #include "binding.h"

    extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream);

    Tensor forward(Tensor x) {
        check_first(x, "x");
        OnDeviceOf device(x);
        Tensor y = new_like(x);
        check_launch(launch(in<float>(x), out<float>(y), x.numel(), device.stream));
        return y;
    }

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("forward(Tensor x) -> Tensor"); }
    STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
        m.impl("forward", TORCH_BOX(&forward));
    }
"""


class Notebook:
    """A shell with the extension loaded."""

    def __init__(self) -> None:
        self.shell = InteractiveShell.instance()
        self.run("%load_ext lab")

    def run(self, cell: str) -> str:
        """Run a cell that must succeed; return what it shows."""
        shown, error = self.attempt(cell)
        if error:
            raise error
        return shown

    def attempt(self, cell: str) -> tuple[str, BaseException | None]:
        """Run a cell; return what it shows and what it raises."""
        with capture_output(display=False) as captured:
            result = self.shell.run_cell(textwrap.dedent(cell))
        return captured.stdout, result.error_before_exec or result.error_in_exec

    def __getitem__(self, name: str) -> object:
        return self.shell.user_ns[name]


@pytest.fixture
def notebook(in_scratch, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr("jitloader.handle._kernels", {})  # none of another test's
    notebook = Notebook()
    yield notebook
    notebook.run("%unload_ext lab")
    InteractiveShell.clear_instance()
    del builtins.__IPYTHON__  # the shell leaves it, and the loader asks for it


# ---- before a cell runs


def test_a_cell_runs_the_kernel_as_its_file_is_now(notebook):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu'); call = kernel.answer")
    answer(2)
    shown = notebook.run("result = kernel.answer(), call()")
    assert notebook["result"] == (2, 2)
    (line,) = shown.splitlines()[-1:]
    assert line.startswith("answer: rebuilt for cpu in ")
    assert line.endswith(" s; answer.cu +1 −1 lines")
    assert notebook.run("result = kernel.answer()") == ""


def test_kernels_of_one_name_are_told_apart_when_they_are_rebuilt(notebook):
    header = write("value.h", "#define VALUE 1")
    text = '#include "value.h"\nextern "C" int answer() { return VALUE + MORE; }'
    write("answer.cu", text)
    write("mine/answer.cu", text.replace("value.h", "../value.h"))
    notebook.run(
        "import jitload\n"
        "first, second = (jitload.load('answer.cu', flags=[f'-DMORE={n}']) for n in (1, 2))\n"
        "third = jitload.load('mine/answer.cu', flags=['-DMORE=1'])"
    )
    header.write_text("#define VALUE 2")
    lines = notebook.run("result = first.answer(), third.answer()").splitlines()
    heads = [line.partition(": ")[0] for line in lines if line.startswith("answer")]
    assert len(set(heads)) == len(heads) == 3
    assert any("-DMORE=2" in head for head in heads)
    assert any("mine/answer.cu" in head for head in heads)


def test_an_edited_header_is_named(notebook):
    header = write("value.h", "#define VALUE 1")
    write("answer.cu", '#include "value.h"\nextern "C" int answer() { return VALUE; }')
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    header.write_text("#define VALUE 2")
    assert "; value.h +1 −1 lines" in notebook.run("result = kernel.answer()")
    assert notebook["result"] == 2


def test_an_earlier_source_opens_its_build_again(notebook):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    answer(2)
    notebook.run("kernel.answer()")
    answer(1)
    shown = notebook.run("result = kernel.answer()")
    assert notebook["result"] == 1
    assert "opened in" in shown
    assert "answer.cu +1 −1 lines" in shown


def test_an_emptied_cache_costs_the_line_counts_alone(notebook):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    shutil.rmtree(notebook["kernel"].build.folder)
    answer(2)
    shown = notebook.run("result = kernel.answer()")
    assert notebook["result"] == 2
    assert shown.rstrip().endswith("; answer.cu")


def test_a_broken_edit_is_shown_and_calls_raise_until_it_is_mended(notebook):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    answer("nothing")
    shown, error = notebook.attempt("before = 'ran'; result = kernel.answer()")
    assert "answer.cu:1:34: error:" in shown
    assert "Calls of answer raise this until its files change." in shown
    assert isinstance(error, jitload.CompileError)
    assert notebook["before"] == "ran", "a cell that does not use the kernel is not locked out"
    shown, error = notebook.attempt("kernel.answer()")
    assert "Calls of answer" not in shown, "the error was shown when it was new"
    assert isinstance(error, jitload.CompileError)
    answer(1)
    assert "runs again" in notebook.run("result = kernel.answer()")
    assert notebook["result"] == 1


def test_a_kernel_that_never_compiled_is_mended_by_its_own_cell(notebook):
    answer("nothing")
    _, error = notebook.attempt("import jitload; kernel = jitload.load('answer.cu')")
    assert isinstance(error, jitload.CompileError)
    answer(1)
    notebook.run("kernel = jitload.load('answer.cu')")
    assert notebook["kernel"].answer() == 1


def test_a_deleted_source_is_reported_and_the_notebook_goes_on(notebook):
    path = answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    path.unlink()
    assert "is gone" in notebook.run("result = 5")
    assert "is gone" not in notebook.run("result = 5"), "once is enough"
    _, error = notebook.attempt("kernel.answer()")
    assert isinstance(error, FileNotFoundError)


def test_an_interrupted_build_is_started_anew_by_the_next_cell(notebook, monkeypatch):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    answer(2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("toolchain.compile.compile_library", interrupt)
        shown, error = notebook.attempt("ran = True; kernel.answer()")
    assert "answer: build interrupted" in shown
    assert error is not None
    assert "ran" not in notebook.shell.user_ns, "the stop button stops the cell too"
    notebook.run("result = kernel.answer()")
    assert notebook["result"] == 2


@pytest.mark.slow
def test_a_compiled_function_runs_the_new_build(notebook):
    notebook.run("%%cu scale -DFACTOR=2\n" + textwrap.dedent(SCALE + "// ---- binding" + BINDING))
    notebook.run("""
        import torch
        compiled = torch.compile(lambda x: scale.forward(x) + 1, backend="eager")

        @scale.register_fake("forward")
        def _(x):
            return torch.empty_like(x)

        first = compiled(torch.ones(4))
    """)
    source = Path("scratch/scale.cu")
    source.write_text(source.read_text().replace("FACTOR)", "FACTOR + 1)"))
    notebook.run("second = compiled(torch.ones(4))")
    assert notebook["first"].tolist() == [3] * 4
    assert notebook["second"].tolist() == [4] * 4


def test_where_nothing_changed_a_cell_looks_once_at_each_file_of_ten_kernels(notebook, monkeypatch):
    """And at each of the folders of ops: that takes less than 5 ms."""
    monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns: real() + 100 * 10**9)
    for i in range(10):
        write(f"value{i}.h", f"#define VALUE {i}")
        source = f'#include "value{i}.h"\nextern "C" int answer() {{ return VALUE; }}'
        jitload.load(write(f"kernel{i}.cu", source))
    hook = notebook.shell.events.callbacks["pre_run_cell"][-1]
    hook(None)
    calls = calls_in(lambda: hook(None))
    assert len(jitload.loaded()) == 10
    assert calls["open"] == 0, calls
    assert calls["stat"] < 100, calls
    assert calls.total() < 7000, calls


def test_unloaded_nothing_is_rebuilt_and_cu_is_gone(notebook):
    answer(1)
    notebook.run("import jitload; kernel = jitload.load('answer.cu')")
    notebook.run("%unload_ext lab")
    answer(2)
    assert notebook.run("result = kernel.answer()") == ""
    assert notebook["result"] == 1
    assert notebook.shell.find_cell_magic("cu") is None
    notebook.run("%load_ext lab")
    notebook.run("result = kernel.answer()")
    assert notebook["result"] == 2


# ---- an error's links in JupyterLab


def test_paths_in_any_errors_message_are_shown_as_jupyterlab_links_them(notebook, monkeypatch):
    shown = []
    monkeypatch.setattr(
        InteractiveShell, "_showtraceback", lambda shell, kind, error, lines: shown.append(lines)
    )
    root = jitload.KERNELS.parent
    monkeypatch.setattr("toolchain.links.server_root", lambda: root)
    cell = "raise RuntimeError('kernel k, launched at kernels/square.cu:61: no')"
    notebook.attempt(cell)
    assert shown[-1][-1].endswith(f"kernel k, launched at {root}/kernels/square.cu:61: no")
    notebook.run("%unload_ext lab")
    notebook.attempt(cell)
    assert shown[-1][-1].endswith("kernel k, launched at kernels/square.cu:61: no")
    notebook.run("%load_ext lab")


# ---- reference.py and kernels/NAME.py


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Where each test has it anew: what one has built of it, the next ones find in the cache."""
    return tmp_path_factory.mktemp("op") / "project"


@pytest.fixture
def op(notebook, project, monkeypatch):
    """A project with one op, as the scaffold makes it, that a notebook has imported."""
    root = jitload.KERNELS.parent
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(root / "kernels", project / "kernels")
    shutil.copy(root / "reference.py", project)
    monkeypatch.setattr(jitload, "KERNELS", project / "kernels")
    monkeypatch.setattr("jitloader.arguments.KERNELS", project / "kernels")
    monkeypatch.setattr("lab.notebook.modules.REFERENCE", project / "reference.py")
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("kernels", "reference")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(project)
    notebook.run("""
        import torch
        import reference
        from kernels import square as module
        from kernels.square import square, VERSIONS
        from reference import square as truth, OPS
        x = torch.full((3,), 5.0)
    """)
    assert Path(sys.modules["reference"].__file__).parent == project
    yield project
    for name in of_project():
        del sys.modules[name]


def of_project() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in ("kernels", "reference")]


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_an_edited_reference_is_followed_under_every_name(notebook, op):
    edit(
        op / "reference.py",
        '"""y = x * x"""\n    return x * x',
        '"""y = x"""\n    return x * x * x',
    )
    values = "[f(x)[0].item() for f in (truth, reference.square, OPS['square'].function)]"
    shown = notebook.run(f"result = {values}")
    assert notebook["result"] == [125, 125, 125]
    assert "reference.py: changed, and imported again" in shown
    assert "imported again" not in notebook.run("result = 0")
    assert len(notebook["OPS"]) > 5


def test_a_reference_that_is_broken_is_told_of_and_the_earlier_one_stays(notebook, op):
    kept = (op / "reference.py").read_text()
    for broken, says in [("def broken(:", "SyntaxError"), ("OPS.clear()\n1 / 0", "ZeroDivision")]:
        (op / "reference.py").write_text(f"{kept}\n{broken}\n")
        shown = notebook.run("result = reference.square(x)[0].item(), len(OPS)")
        assert says in shown
        assert "What reference.py said before stays in force until this is mended." in shown
        assert notebook["result"][0] == 25
        assert notebook["result"][1] > 5
        assert says not in notebook.run("result = 0"), "once is enough"
    (op / "reference.py").write_text(kept)
    notebook.run("result = truth(x)[0].item()")
    assert notebook["result"] == 25


def test_an_edited_function_of_an_op_is_followed(notebook, op):
    edit(op / "kernels/square.py", "return kernel.forward(x,", "return kernel.forward(-x - 1,")
    shown = notebook.run("result = [f(x)[0].item() for f in (square, module.square)]")
    assert notebook["result"] == [36, 36]
    assert "kernels/square.py: changed, and imported again" in shown


def test_an_edited_gradient_formula_of_an_op_is_followed(notebook, op):
    edit(
        op / "kernels/square.py",
        '"forward", "x = backward(grad, x, version)"',
        '"forward", lambda ctx, grad: (7 * grad, None)',
    )
    notebook.run("""
        leaf = x.clone().requires_grad_()
        square(leaf).sum().backward()
        result = leaf.grad[0].item()
    """)
    assert notebook["result"] == 7


# ---- %%cu


def cell(*parts: str, name: str = "scale", flags: str = "-DFACTOR=2") -> str:
    return f"%%cu {name} {flags}\n" + textwrap.dedent("".join(parts))


def test_a_cell_becomes_a_kernel_that_takes_tensors(notebook):
    shown = notebook.run(cell(SCALE))
    assert "scale.launch(const float* x, float* y, int n)" in shown
    x, y = torch.arange(5.0), torch.empty(5)
    notebook["scale"].launch(x, y, 5)
    assert torch.equal(y, 2 * x)
    assert notebook["scale"].sources == (Path("scratch/scale.cu").absolute(),)


@pytest.mark.parametrize("above", ["# mine", "\n# the kernel of\n# this page"])
def test_a_magic_below_a_comment_is_told_where_it_belongs(notebook, above):
    shown, error = notebook.attempt(f"{above}\n%%cu late\n__global__ void late(float* x) {{}}")
    assert isinstance(error, SyntaxError)
    assert "%%cu has to be the first line of its cell" in shown
    shown, _ = notebook.attempt("# mine\nprint(1")
    assert "first line" not in shown


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (
            "  %%cu late\n__global__ void late(float* x) {}",
            "first line of its cell, without a space",
        ),
        ("__global__ void k(float* x) { x[0] = 1; }", "begins with a line that names it"),
        ("#include <cstdio>\n__device__ float f() { return 1; }", "such as %%cu mine"),
        ("%cu mine\n__global__ void k(float* x) {}", "such as %%cu mine"),
        ("mine.k<<<4, 256>>>(x, y, 1000)", "brackets launch a kernel: mine.k[4, 256](...)"),
    ],
)
def test_cuda_where_python_stands_is_told_where_it_belongs(notebook, cell, says):
    shown, error = notebook.attempt(cell)
    assert isinstance(error, SyntaxError)
    assert says in shown


@pytest.mark.parametrize(
    "cell",
    [
        "x = [1, 2",
        "# include the mean\nx = = 1",
        'source = """\n__global__ void k(float* x) {}\n"""\nx = = 1',
    ],
)
def test_python_that_speaks_of_cuda_is_not_taken_for_it(notebook, cell):
    shown, error = notebook.attempt(cell)
    assert isinstance(error, SyntaxError)
    assert "this is CUDA C++" not in shown


def test_of_endless_output_the_beginning_and_the_end_are_shown(capsys):
    output = Output()
    for number in range(200_000):
        output(1, b"line %d\n" % number)
    output(2, "\u00e9".encode()[:1])
    output.end()
    shown = capsys.readouterr().out
    assert shown.startswith("line 0\nline 1\n")
    assert shown.endswith("line 199999\n")
    assert len(shown) < Output.MOST + Output.LAST + 100
    left_out = re.search(r"\n\.\.\. ([\d,]+) characters are left out here \.\.\.\n", shown)
    rest = len(shown) - len(left_out[0])
    assert int(left_out[1].replace(",", "")) + rest == sum(
        len(f"line {n}\n") for n in range(200_000)
    )


def test_an_edited_cell_is_a_new_version_of_the_same_handle(notebook):
    notebook.run(cell(SCALE))
    handle, y = notebook["scale"], torch.empty(3)
    shown = notebook.run(cell(SCALE.replace("FACTOR", "FACTOR + 1")))
    assert "scale.cu +1 −1 lines" in shown
    assert notebook["scale"] is handle
    handle.launch(torch.ones(3), y, 3)
    assert y.tolist() == [3, 3, 3]
    handle.at(1).launch(torch.ones(3), y, 3)
    assert y.tolist() == [2, 2, 2]


def test_a_scratch_file_edited_by_hand_is_followed(notebook):
    notebook.run(cell(SCALE))
    path = Path("scratch/scale.cu")
    path.write_text(path.read_text().replace("FACTOR)", "7)"))
    assert "scale: rebuilt" in notebook.run("import torch; y = torch.empty(1)")
    notebook.run("scale.launch(torch.ones(1), y, 1)")
    assert notebook["y"].item() == 7


def test_other_flags_replace_the_kernel_and_the_earlier_one_is_left_alone(notebook):
    notebook.run(cell(SCALE))
    earlier = notebook["scale"]
    source = SCALE.replace("FACTOR", "FACTOR * TIMES")
    notebook.run(cell(source, flags="-DFACTOR=2 -DTIMES=5"))
    assert notebook.run("pass") == ""
    y = torch.empty(1)
    notebook["scale"].launch(torch.ones(1), y, 1)
    assert y.item() == 10
    notebook.run(cell(SCALE))
    assert notebook["scale"] is earlier


def test_other_flags_that_fail_leave_no_kernel_behind(notebook):
    notebook.run(cell(SCALE))
    _, error = notebook.attempt(cell(SCALE, flags="-DFACTOR=nothing"))
    assert isinstance(error, jitload.CompileError)
    assert "scale" not in notebook.shell.user_ns


@pytest.mark.parametrize("marker", ["// ---- binding", "// ---- binding: checks and launch"])
def test_a_binding_below_its_marker_is_compiled_by_itself(notebook, marker):
    notebook.run(cell(SCALE, marker, BINDING))
    assert [path.suffix for path in notebook["scale"].sources] == [".cu", ".cpp"]
    assert notebook["scale"].forward(torch.ones(3)).tolist() == [2, 2, 2]


def test_a_cell_of_c_plus_plus_is_a_binding_alone(notebook):
    source = """
        #include <torch/csrc/stable/library.h>
        #include <torch/csrc/stable/tensor.h>
        int64_t size(torch::stable::Tensor x) { return x.numel(); }
        STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("size(Tensor x) -> int"); }
        STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
            m.impl("size", TORCH_BOX(&size));
        }
    """
    notebook.run(cell(source, name="count", flags=""))
    assert [path.suffix for path in notebook["count"].sources] == [".cpp"]
    assert notebook["count"].size(torch.ones(2, 3)) == 6


@pytest.mark.parametrize("part", ["kernel", "binding"])
def test_errors_point_at_the_cells_lines(notebook, part):
    source = cell(SCALE, "// ---- binding", BINDING)
    wrong = {"kernel": "if (i < n)", "binding": "Tensor y ="}[part]
    line = next(i for i, text in enumerate(source.splitlines(), 1) if wrong in text)
    _, error = notebook.attempt(source.replace(wrong, f"unknown; {wrong}"))
    assert isinstance(error, jitload.CompileError)
    assert error.line == line
    assert "unknown" in error.source


def test_in_jupyterlab_an_error_names_its_cell_and_links_to_it(notebook, monkeypatch, tmp_path):
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "book.ipynb"))
    message = {"metadata": {"cellId": "the-id"}}
    monkeypatch.setattr(notebook.shell, "get_parent", lambda: message, raising=False)
    broken = "__global__ void k(float* x) {\n    x[0] = nothing;\n    x[1] = 2 +;\n}"
    _, error = notebook.attempt(f"%%cu broken\n{broken}")
    places = notebook.shell.magics_manager.magics["cell"]["cu"].__self__.places
    told = places.named(str(error))
    assert "%%cu broken:3:12: error" in told
    assert "%%cu broken:4:" in told
    assert 'href="book.ipynb#cell-id=the-id"' in places.links(told)
    assert "lines 3, 4" in places.links(told)
    assert "nothing" in log_of(error)
    others = "broken.cu:3: my/scratch/book/broken.cu:3: /elsewhere/broken.cu:3"
    assert places.named(others) == others


def test_each_notebook_has_a_folder_of_its_own(notebook, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/02 mine.ipynb")
    notebook.run(cell(SCALE))
    assert Path("scratch/02 mine/scale.cu").is_file()


def test_headers_beside_the_notebook_are_found_and_followed(notebook):
    header = write("factor.h", "#define FACTOR 3")
    notebook.run(cell('#include "factor.h"\n', SCALE, flags=""))
    header.write_text("#define FACTOR 4")
    notebook.run("import torch; y = torch.empty(1); scale.launch(torch.ones(1), y, 1)")
    assert notebook["y"].item() == 4


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "name the kernel that this cell becomes, as in: %%cu scale"),
        ("-DN=4", "name the kernel that this cell becomes"),
        ("two-words", "no name of a variable"),
        ("a --target gpu", "--target"),
    ],
)
def test_a_wrong_first_line_says_what_is_wanted(notebook, line, says):
    with capture_output(display=False) as captured:
        notebook.shell.run_cell(f"%%cu {line}\nint x;")
    assert says in captured.stdout + captured.stderr
    assert not Path("scratch").exists()


BARE = """
    __global__ void add(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += x[i];
    }
"""


def test_a_cell_of_a_kernel_alone_says_how_it_is_launched(notebook):
    shown = notebook.run(cell(BARE, name="sums", flags=""))
    assert "sums.add[grid, block](const float* x, float* y, int n)" in shown
    notebook.run("import torch; y = torch.zeros(9); sums.add[1, 32](torch.ones(9), y, 9)")
    assert notebook["y"].sum() == 9
    shown = notebook.run("sums.add?")
    assert "(x: const float*, y: float*, n: int, /)" in shown
    assert "*args" not in shown
    assert "__global__ void add(const float* x, float* y, int n)" in shown


def test_a_cell_that_offers_nothing_says_why_and_what_to_write(notebook):
    template = BARE.replace("__global__", "template <class T> __global__").replace("float", "T")
    shown = notebook.run(cell(template, name="sums", flags=""))
    assert "sums.add[class T][grid, block](const T* x, T* y, int n)" in shown
    pack = BARE.replace("__global__", "template <class... T> __global__")
    shown = notebook.run(cell(pack, name="sums", flags=""))
    assert "nothing in it can be called from Python" in shown
    assert "add is a template" not in shown
    assert "kernel add: it is a template" in shown
    assert 'extern "C" void launch_add(..., cudaStream_t stream) { add<<<blocks, threads' in shown


def test_a_cell_of_includes_alone_offers_what_they_define(notebook):
    write("sums.cuh", BARE)
    shown = notebook.run(cell('#include "sums.cuh"\n', name="sums", flags=""))
    assert "sums.add[grid, block](const float* x, float* y, int n)" in shown
    write("nothing.cuh", "struct Nothing {};")
    shown = notebook.run(cell('#include "nothing.cuh"\n', name="nothing", flags=""))
    assert "nothing in it can be called from Python. It defines neither a __global__" in shown


def test_cuda_is_another_name_of_the_magic(notebook):
    notebook.run("%%cuda sums\n" + textwrap.dedent(BARE))
    notebook.run("import torch; y = torch.zeros(9); sums.add[1, 32](torch.ones(9), y, 9)")
    assert notebook["y"].sum() == 9
    assert "threadIdx" in offered(notebook.shell, "%%cuda sums\nint i = threadI|")
    notebook.run("%unload_ext lab")
    assert "cuda" not in notebook.shell.magics_manager.magics["cell"]
    notebook.run("%load_ext lab")


@pytest.mark.parametrize("magic", ["%%cu", "%%cuda", "%%cuda -t"])
def test_a_cell_without_a_name_is_told_how_to_name_it(notebook, magic):
    main = "int main() { add<<<1, 1>>>(nullptr, nullptr, 0); }" if magic == "%%cu" else ""
    program = textwrap.dedent(BARE + main)
    with capture_output(display=False) as captured:
        notebook.shell.run_cell(f"{magic}\n{program}")
    said = captured.stdout + captured.stderr
    assert "name the kernel that this cell becomes, as in: %%cu add" in said
    assert "launch it from Python: add.add[grid, block](x, y, n)" in said
    assert ("Or run its main(): %%cu --run" in said) == bool(main)


PROGRAM = """
    #include <cstdio>
    #include <cstdlib>
    #include <unistd.h>
    __global__ void hello() { printf("thread %d\\n", threadIdx.x); }
    int main(int argc, char** argv) {
        hello<<<1, 2>>>();
        cudaDeviceSynchronize();
        if (argc == 1) for (;;) sleep(1);
        std::FILE* file = std::fopen(argv[1], "r");
        std::printf("é %s %d\\n", argv[2], file != nullptr);
        std::fprintf(stderr, "to stderr\\n");
        return 3;
    }
"""


def test_a_cell_with_a_main_is_run_where_the_notebook_lies(notebook, monkeypatch):
    write("data.txt", "")
    shown = notebook.run("%%cuda --run data.txt -x\n" + textwrap.dedent(PROGRAM))
    lines = shown.splitlines()
    assert "thread 0\nthread 1\né -x 1\n" in shown
    assert re.fullmatch(
        r"program: built for cpu in \S+ s; ended with exit status 3 after \S+ s", lines[-1]
    )
    assert Path("scratch/program.cu").is_file()

    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with monkeypatch.context() as patch:
        patch.setattr("lab.notebook.cu_magic.Output.__call__", interrupt)
        started = time.perf_counter()
        _, error = notebook.attempt("%%cu named --run\n" + textwrap.dedent(PROGRAM))
    signal.signal(signal.SIGINT, before)
    assert isinstance(error, KeyboardInterrupt)
    assert re.fullmatch(r"named.cu was stopped after \S+ s", str(error))
    assert time.perf_counter() - started < 30
    shown = notebook.run("%%cu named\n" + textwrap.dedent(PROGRAM))
    assert "named.hello[grid, block](). Its main() is run by: %%cu named --run" in shown


def test_a_cell_without_a_main_is_not_run(notebook):
    _, error = notebook.attempt(f"%%cu --run\n{textwrap.dedent(BARE)}")
    assert isinstance(error, ValueError)
    assert "program.cu: there is no main() to run" in str(error)


def test_vs_code_says_which_notebook_it_is(notebook):
    notebook.shell.user_ns["__vsc_ipynb_file__"] = "/home/me/03 mine.ipynb"
    notebook.run(cell(SCALE))
    assert Path("scratch/03 mine/scale.cu").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("session", [{}, {"JPY_SESSION_NAME": "/home/me/same.ipynb"}])
def test_two_kernels_in_one_folder_run_each_its_own_cells(in_scratch, cache, session):
    """As two notebooks have them whose names are not known, or one that is open twice."""
    manager_of = pytest.importorskip("jupyter_client.manager", reason="needs Jupyter")
    settings = {k: v for k, v in os.environ.items() if k != "JPY_SESSION_NAME"} | session
    settings |= {"JITLOAD_CACHE": str(cache), "JITLOAD_TARGET": "cpu"}

    def run(client, code: str) -> str:
        reply = client.execute(code, reply=True, timeout=120, user_expressions={"it": "answer"})
        assert reply["content"]["status"] == "ok", reply["content"]
        return reply["content"]["user_expressions"]["it"].get("data", {}).get("text/plain")

    kernels = [manager_of.start_new_kernel(env=settings, cwd=Path.cwd()) for _ in range(2)]
    try:
        for number, (_, client) in enumerate(kernels):
            run(client, "%load_ext lab")
            run(client, f'%%cu same\nextern "C" int value() {{ return {number}; }}')
        for number, (_, client) in enumerate(kernels):
            assert run(client, "answer = same.value()") == str(number)
        place = Path("scratch", *(["same"] if session else []))
        assert {str(path.relative_to(place)) for path in place.rglob("*.cu")} == {
            "same.cu",
            "session_2/same.cu",
        }
        for manager, client in kernels:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        kernels = [manager_of.start_new_kernel(env=settings, cwd=Path.cwd())]
        run(kernels[0][1], "%load_ext lab")
        run(kernels[0][1], '%%cu same\nextern "C" int value() { return 2; }')
        assert len(list(place.rglob("*.cu"))) == 2, "who comes after them has the first place again"
        assert "return 2" in (place / "same.cu").read_text()
    finally:
        for manager, client in kernels:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


# ---- completion


def offered(shell: InteractiveShell, cell: str) -> dict[str, str]:
    """What is offered at the mark | of a cell, as it would stand there, and what it comes from."""
    before, after = cell.split("|")
    with provisionalcompleter():
        found = list(shell.Completer.completions(before + after, len(before)))
    starts = {completion.start for completion in found}
    assert all(re.fullmatch(r"\w*|[\w.]*", before[start:]) for start in starts), starts
    return {completion.text: completion.type for completion in found}


@pytest.mark.parametrize(
    ("written", "completed", "origin"),
    [
        ("    int i = threadI|", "threadIdx", "CUDA"),
        ("    int i = blockIdx.x * blockD|im.x", "blockDim", "CUDA"),
        ("    __syncth|", "__syncthreads", "CUDA"),
        ("    x += __shfl_xor|(mask, x, 1)", "__shfl_xor_sync", "CUDA"),
        ("    atomicA|", "atomicAdd", "CUDA"),
        ("    const cudaSt|", "cudaStream_t", "CUDA"),
        ("    auto v = make_flo|", "make_float4", "CUDA"),
        ("    y[i] = __float2h|(x)", "__float2half", "CUDA"),
        ("__launch_b|", "__launch_bounds__", "CUDA"),
        ("    warp_s|", "warp_sum", "rows.cuh"),
        ("    for (int i = 0; i < ceil_|", "ceil_div", "vec.cuh"),
        ("    constexp|", "constexpr", "C++"),
        ("    y[i] = row_off|", "row_offset", "cell"),
        ('#include "row|', "rows.cuh", "kernels/include"),
        ('#include "fact|', "factors.h", "beside"),
    ],
)
def test_a_cell_of_cuda_is_completed(notebook, written, completed, origin):
    write("factors.h", "")
    cell = f"%%cu scale -O3\n// the offset of a row\n{written}\nint row_offset;\n"
    assert offered(notebook.shell, cell)[completed] == origin


def test_members_are_those_of_an_index_and_of_the_cell(notebook):
    assert offered(notebook.shell, "%%cu a\nint i = threadIdx.|").keys() == set("xyz")
    text = "%%cu a\nplan.rows = 1;\nint i = plan.|"
    assert offered(notebook.shell, text).keys() == {*"xyzw", "rows"}
    assert offered(notebook.shell, "%%cu a\nfloat y = v[0].|").keys() == set("xyzw")
    assert "make_float4" in offered(notebook.shell, "%%cu a\nfloat y = 1.0f + ma|")


def test_nothing_of_pythons_is_offered_there_and_nothing_of_cudas_elsewhere(notebook):
    notebook.run("threads = 5")
    assert "threads" not in offered(notebook.shell, "%%cu a\nthrea|")
    assert offered(notebook.shell, "%%cu a\nthreads_of_|").keys() <= {"threads_of_"}
    assert "threadIdx" not in offered(notebook.shell, "threa|")
    assert "threads" in offered(notebook.shell, "threa|")
    assert "threadIdx" not in offered(notebook.shell, "%%cu threa|\n")
    notebook.run("%unload_ext lab")
    assert "threadIdx" not in offered(notebook.shell, "%%cu a\nthrea|")
    notebook.run("%load_ext lab")


def test_under_colabs_ipython_nothing_is_completed_and_the_rest_works(notebook, monkeypatch):
    notebook.run("%unload_ext lab")
    monkeypatch.setattr("IPython.version_info", (7, 34, 0, ""))
    monkeypatch.setitem(sys.modules, "lab.notebook.completion", None)  # it cannot be imported there
    notebook.run("%load_ext lab")
    assert "threadIdx" not in offered(notebook.shell, "%%cu a\nthrea|")
    notebook.run('%%cu older\nextern "C" int value() { return 3; }')
    assert notebook["older"].value() == 3


# ---- in a notebook


@pytest.mark.usefixtures("forked_kernels")
def test_a_notebook_sees_the_build_live_and_then_its_report_in_one_output(in_scratch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    edit = """
        from pathlib import Path
        path = Path("scratch/scale.cu")
        _ = path.write_text(path.read_text().replace("FACTOR)", "{factor})"))
    """
    sources = [
        "%load_ext lab",
        cell(SCALE, flags="-DFACTOR=2 --target cpu"),
        textwrap.dedent(edit).format(factor="5)"),  # one parenthesis too many
        "done = 1",
        textwrap.dedent(edit).format(factor="5").replace('"FACTOR)"', '"5))"'),
        "import torch; y = torch.empty(1); scale.launch(torch.ones(1), y, 1); y.item()",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    messages = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, *arguments):
            if "data" in message["content"]:
                messages.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, *arguments)

    client = Client(nbformat.v4.new_notebook(cells=cells))
    client.execute(cwd=str(Path.cwd()))
    made, broken, mended = cells[1], cells[3], cells[5]
    assert [output.output_type for output in made.outputs] == ["display_data"]
    assert made.outputs[0].data["text/plain"].startswith("scale: built for cpu in ")
    (output,) = broken.outputs
    assert "scale.cu:9:" in output.data["text/plain"]
    assert "Calls of scale raise this" in output.data["text/html"]
    report, result = mended.outputs
    assert "scale.cu +1 −1 lines" in report.data["text/plain"]
    assert result.data["text/plain"] == "5.0"
    building = r"scale \(-DFACTOR=2\): building for cpu, 1 of 2: scale\.cu, \d+\.\d s"
    assert any(re.match(building, message) for message in messages)


@pytest.mark.usefixtures("forked_kernels")
def test_the_stop_button_ends_a_build_and_its_cell(in_scratch, tmp_path):
    """In a kernel of its own, which is interrupted as Jupyter interrupts it."""
    manager = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    answer(1)
    running, client = manager.start_new_kernel()

    def run(code: str, interrupt_at: str | None = None) -> tuple[str, str]:
        """How a cell ended, and all that it showed; stopped once `interrupt_at` is shown."""
        shown = []

        def hear(message: dict) -> None:
            nonlocal interrupt_at
            content = message["content"]
            shown.append(str(content.get("data") or content.get("text") or content.get("ename")))
            if interrupt_at and interrupt_at in shown[-1]:
                running.interrupt_kernel()
                interrupt_at = None

        reply = client.execute_interactive(code, output_hook=hear, timeout=120)
        return reply["content"]["status"], "\n".join(shown)

    try:
        run("%load_ext lab")
        text = "%%cu name\n__syncth"
        reply = client.complete(text, len(text), reply=True, timeout=60)
        assert "__syncthreads" in reply["content"]["matches"], reply
        assert text[reply["content"]["cursor_start"] :] == "__syncth"
        run("import jitload; kernel = jitload.load('answer.cu', target='cpu')")
        write("answer.cu", f"{ENDLESS}\nint answer = Slow<double, 800>::value;")
        status, shown = run("ran = True", interrupt_at="1 of 2: answer.cu")
        assert status == "error", shown
        assert "answer: build interrupted" in shown
        wait_for(lambda: not compilers_in(tmp_path), "the compilers to end", 20)
        answer(2)
        status, shown = run("print('ran' in globals(), kernel.answer())")
        assert status == "ok"
        assert "answer: rebuilt for cpu" in shown
        assert "False 2" in shown
        answer("nothing")
        status, shown = run("kernel.answer()")
        assert status == "error"
        assert "answer: not built; its error stands below" in shown, "once is enough"
    finally:
        client.stop_channels()
        running.shutdown_kernel(now=True)


# ---- the everyday case, as lab?, %%cu? and README.md show it


def cells_of(text: str) -> list[str]:
    """The cells of the example in a docstring."""
    example = textwrap.dedent(
        re.search(r"(?ms)^ +%load_ext lab$.*?^ +lab\.compare_calls.*?$", text)[0]
    )
    return example.split("\n\n")


def test_a_kernel_of_ones_own_beside_pytorchs_as_it_is_shown(notebook):
    import lab

    example = cells_of(lab.__doc__)
    _, kernel, compared = example
    assert kernel.startswith("%%cu ")
    assert len(kernel.splitlines()) == 5
    assert cells_of(notebook.shell.find_cell_magic("cu").__doc__) == example
    readme = (jitload.KERNELS.parent / "README.md").read_text()
    fenced = re.findall(r"(?ms)^```(?:python|c\+\+)\n(.*?)\n```$", readme)
    assert [re.sub(r"\n+", "\n", each) for each in fenced[:3]] == example

    for each in example:
        notebook.run(each)
    *_, call = compared.splitlines()
    notebook.run(f"comparison = {call}")
    table, figure = notebook["comparison"]
    assert list(table["call"]) == ["mine", "torch"]
    assert list(table["clock"]) == ["CPU simulator", "CPU"]
    assert (table["max_ulp"] < 4).all()
    assert table["bytes_fetched"][0] == table["bytes"][0]
    assert [axes.get_title("left") for axes in figure.axes][1:] == ["predicted time"]


def test_a_name_that_python_has_for_itself_is_refused(notebook):
    _, error = notebook.attempt("%%cu class\n__global__ void k(float* x) {}")
    assert "'class' is no name of a variable" in str(error)


def test_a_name_that_is_no_kernels_is_not_replaced(notebook):
    notebook.run("import torch")
    _, error = notebook.attempt("%%cu torch\n__global__ void k(float* x) {}")
    assert "torch is a module here" in str(error)
    assert notebook["torch"] is torch
    for value in (1, 2):  # a kernel's own name is its cell's
        notebook.run(f'%%cu mine\nextern "C" int answer() {{ return {value}; }}')
        assert notebook["mine"].answer() == value


def test_cuda_runs_what_has_a_main(notebook):
    program = '#include <cstdio>\nint main() { puts("ran"); }'
    assert "ran" in notebook.run(f"%%cuda\n{program}")
    assert "ran" in notebook.run(f"%%cuda --target cpu -O1\n{program}")
    _, error = notebook.attempt(f"%%cu\n{program}")
    assert "name the kernel" in str(error)


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_a_device_that_is_not_there_is_answered_with_the_one_that_is(notebook):
    shown, error = notebook.attempt("import torch\ntorch.ones(1, device='cuda')")
    assert error
    assert "device=jitload.device() is where kernels run" in shown
