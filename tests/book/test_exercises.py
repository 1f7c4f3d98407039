"""Every exercise fails until it is solved, every solution passes, and each belongs to a chapter."""

import html
import re
import runpy
from collections import Counter

import nbformat
import pytest
import torch

import lab
from lab.course import exercise
from lab.course.exercise import EXERCISES, SOLUTIONS, Attempt, Wrong
from notebooks import publish

NAMES = exercise.names()
KERNELS = [name for name in NAMES if exercise.find(name).lines is not None]
ANSWERS = [name for name in NAMES if name not in KERNELS]
LEAST = 4  # exercises of a chapter


@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=[pytest.mark.slow] * (n % 6 != 0)) for n, it in enumerate(KERNELS)],
)
def test_unsolved_kernel_compiles_and_fails(name, published):
    published(exercise.path_of(name))
    verdict = exercise.judge(name)
    assert not verdict, "the exercise is solved already"
    assert "error:" not in verdict.reason, verdict  # of the compiler
    assert "TODO" in exercise.path_of(name).read_text()


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_fails(name):
    assert not exercise.judge(name)


def test_a_part_of_an_answer_is_none():
    assert "no answer yet" in exercise.judge("primer_step", (3, ...)).reason


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_solved_kernel_passes(name, monkeypatch, gpu_alone):
    def checked_too(attempt, *arguments):
        report = lab.check(attempt.launch, *arguments, traffic=False)
        assert report.findings.empty, report
        call(attempt, *arguments)

    call = Attempt.__call__
    monkeypatch.setattr(Attempt, "__call__", checked_too)
    verdict = exercise.judge_kernel(name, exercise.path_of(name, SOLUTIONS))
    assert verdict, verdict
    assert "TODO" not in exercise.path_of(name, SOLUTIONS).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_solved_answer_passes(name):
    solution = runpy.run_path(SOLUTIONS / f"{name}.py")
    verdict = exercise.judge(name, solution["answer"])
    assert verdict, verdict


def test_files_are_those_of_the_exercises():
    files = [exercise.path_of(name).name for name in KERNELS]
    assert sorted(path.name for path in EXERCISES.glob("*.c*")) == sorted(files)
    solved = [path.name for path in SOLUTIONS.iterdir() if path.is_file()]
    assert sorted(solved) == sorted(files + [f"{name}.py" for name in ANSWERS])


@pytest.mark.parametrize("path", publish.chapters(), ids=lambda path: path.stem)
def test_chapter_checks_each_of_its_exercises_once(path, published):
    published(path)
    cells = nbformat.read(path, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    checked = Counter(re.findall(r'(?:check|judge)\(\s*"(\w+)"', code))
    chapter = path.stem.split("_")[0]
    assert checked == Counter(name for name in NAMES if name.startswith(f"{chapter}_"))
    assert len(checked) >= LEAST


# Wrong answers that a reader may give to chapter 20, and what the verdict says.
WRONG_ANSWERS = [
    ("20_instruction", lambda m, n, a, b: 1 << 4 | a << 7 | b << 10 | n << 17 | m << 24, "n / 8"),
    ("20_allocate", lambda accumulators, columns, _: accumulators * columns, "What counts"),
    ("20_scale", lambda row, block, blocks: row * blocks + block, "rows of one quarter"),
    ("20_pair", lambda pairs, warps: (1, pairs, warps), "the sums of both blocks"),
    ("20_step", (3, 0), "which lanes does warp 3 reach"),
]


@pytest.mark.parametrize(
    ("name", "given", "told"), WRONG_ANSWERS, ids=[it[0] for it in WRONG_ANSWERS]
)
def test_a_wrong_answer_is_told_what_to_look_at(name, given, told):
    verdict = exercise.judge(name, given)
    assert not verdict
    assert told in verdict.reason


@pytest.mark.slow
def test_a_deadlock_is_told_though_it_is_at_no_line_of_the_file(tmp_path, monkeypatch):
    text = exercise.path_of("20_phase", SOLUTIONS).read_text()
    text = text.replace("../ladders/", f"{EXERCISES.parent}/ladders/")
    path = tmp_path / "20_phase.cu"
    path.write_text(text.replace("(round + 1) % 2", "round % 2"))
    assert "deadlock" in exercise.judge_kernel("20_phase", path).reason


# ---------------------------------------------------------------------------- the judging itself


def test_a_verdict_tells_what_the_checker_finds(published):
    published(exercise.path_of("00_tail"))
    tail = exercise.path_of("00_tail")
    (line,) = (n for n, text in enumerate(tail.read_text().splitlines(), 1) if "y[i] =" in text)
    assert f"lab.check: out of bounds, line {line}" in exercise.judge("00_tail").reason


def test_a_notebook_folds_what_gives_a_bug_away():
    verdict = exercise.judge("00_tail")
    shown = re.sub(r"</summary>.*</details>", "", verdict._repr_html_(), flags=re.DOTALL)
    assert "not yet" in shown
    assert "lab.check" in verdict.reason
    for line in verdict.reason.splitlines():
        assert line not in shown
        assert html.escape(line) in verdict._repr_html_()
    filled_in = exercise.judge("00_polynomial")
    assert html.escape(filled_in.reason) in filled_in._repr_html_()
    assert "<details>" not in filled_in._repr_html_()


def test_whatever_bug_is_to_be_found_is_folded():
    for path in publish.chapters():
        cells = nbformat.read(path, as_version=4).cells
        texts = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        asks = [it for it in re.split(r"\n(?=\*\*\d+ · )", texts) if "Spot the bug" in it]
        judged = re.findall(r'(?:check|judge)\("(\w+)"', code)
        bugs = {name for name in judged if exercise.find(name).bug}
        named = {name for it in asks for name in re.findall(r"exercises/(\w+)\.", it)}
        assert named <= bugs, path
        assert len(asks) == len(bugs), path


def test_an_access_outside_of_a_tensor_is_noticed():
    x = torch.arange(3.0)

    def too_far(y):
        y.set_(y.untyped_storage(), y.storage_offset(), (y.numel() + 1,))
        y.fill_(0)

    attempt = Attempt(too_far)
    with pytest.raises(Wrong, match="outside of a tensor"):
        attempt(attempt.tensor(x))


def test_a_nan_written_outside_of_a_tensor_is_noticed():
    attempt = Attempt(lambda x, y: y.untyped_storage().copy_(x.untyped_storage()))
    with pytest.raises(Wrong, match="outside of a tensor"):
        attempt(attempt.tensor(torch.ones(3)), attempt.empty(3))


def test_an_answer_that_raises_is_a_verdict():
    name = "01_loads_in_flight"
    verdict = exercise.judge(name, lambda: 1)
    assert not verdict
    assert "TypeError" in verdict.reason


def test_more_lines_than_the_budget_fail(tmp_path):
    path = tmp_path / "01_nan.cu"
    solution = exercise.path_of("01_nan", SOLUTIONS).read_text()
    more = "".join(f"constexpr int line_{k} = {k};\n" for k in range(3))
    path.write_text(f"{solution}// a comment is free\n\n{more}")
    verdict = exercise.judge_kernel("01_nan", path)
    assert not verdict
    assert verdict.reason == "right, but 11 lines long; wanted are 10 at most"


UNCOALESCED = """
__global__ void transpose(const float* x, float* y, int rows, int cols) {
    const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    if (r < rows && c < cols) y[c * size_t(rows) + r] = x[r * size_t(cols) + c];
}
extern "C" void launch(const float* x, float* y, int rows, int cols) {
    transpose<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 32)>>>(x, y, rows, cols);
}
"""


def test_a_slow_kernel_does_not_pass_without_a_gpu_either(tmp_path):
    path = tmp_path / "01_transpose.cu"
    path.write_text(UNCOALESCED)
    verdict = exercise.judge_kernel("01_transpose", path)
    assert not verdict
    assert re.search(r"\d% of a copy.*; wanted is 50%$", verdict.reason)


def test_a_kernel_that_does_not_compile_is_a_verdict(tmp_path):
    path = tmp_path / "01_nan.cu"
    path.write_text("__global__ void relu(const float* x) { y = x; }\n")
    verdict = exercise.judge_kernel("01_nan", path)
    assert "error:" in verdict.reason


def test_wrong_use_names_the_argument():
    with pytest.raises(ValueError, match="no exercise '01_none'; there is 01_leaky_relu"):
        exercise.judge("01_none")
    with pytest.raises(TypeError, match=r"no answer but a kernel, in .*01_nan\.cu"):
        exercise.judge("01_nan", 3)
