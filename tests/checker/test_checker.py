"""The checker on planted bugs: each is found, at its line, and nothing else is."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from checked import FOLDER, checked, kernels, kinds, written
from op_cases import BEST, CASES, Calls, Case, module_of, mostly_slow, outcome

import lab
from jitloader import building

EXPORT = re.compile(
    r'^(?:extern "C" void (?!function\()|(?:EXPORT|LAUNCH|BOXES)\()(\w+)', re.MULTILINE
)


def exports(file: Path) -> list[str]:
    """The functions of a file, also those that a macro of the file's defines."""
    return EXPORT.findall(file.read_text())


MARK = re.compile(r"// BUG (?P<function>\w+): (?P<kind>[\w: ]+)$")
PLANTED = [
    (path.name, match["function"], match["kind"], number)
    for path in sorted(FOLDER.glob("*.cu"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if (match := MARK.search(line))
]
_marked = {each[:2] for each in PLANTED}
CORRECT = [
    (path.name, function)
    for path in sorted(FOLDER.glob("*.cu"))
    for function in exports(path)
    if (path.name, function) not in _marked
]

MOVERS = [case for case in BEST if not case.is_product]  # whose time is that of their traffic
SHAPES = [(5, 257), (33, 64)]  # rows that are no whole vectors, and rows that are


def checked_case(
    case: Case, dtype: torch.dtype, rows: int, cols: int, **options: int
) -> lab.Report:
    """An op forward and backward."""
    inputs = case.inputs(rows, cols, dtype)
    return lab.check(lambda **inputs: outcome(case.ours, inputs), **inputs, **options)


@cache
def compile_checks(name: str) -> None:
    """What checks of an op instrument: most of it is called, and part by part takes longer."""
    recipe = module_of(name).kernel.recipe
    building.ensure(replace(recipe, target="cpu", debug=False, check=True))


def expect_bug(file: str, function: str, kind: str, line: int, order: int = 0) -> None:
    report = checked(getattr(kernels(file), function), thread_order=order)
    found = report.findings
    assert kinds(report) == {kind}, str(report)
    ends = (found[["file", "line"]], found[["other_file", "other_line"]].dropna())
    places = {(Path(path).name, at) for end in ends for path, at in end.itertuples(index=False)}
    assert (file, line) in places, str(report)


def expect_nothing(file: str, function: str, order: int = 0) -> None:
    report = checked(getattr(kernels(file), function), thread_order=order)
    assert report.findings.empty, str(report)


@pytest.mark.parametrize(("file", "function", "kind", "line"), PLANTED, ids=lambda v: str(v))
def test_a_planted_bug_is_found_at_its_line(file, function, kind, line):
    expect_bug(file, function, kind, line)


@pytest.mark.parametrize(("file", "function"), CORRECT)
def test_nothing_is_found_in_a_correct_kernel(file, function):
    expect_nothing(file, function)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "order"),
    [
        (file, number % 3 + 1)
        for number, file in enumerate(sorted({each[0] for each in [*PLANTED, *CORRECT]}))
    ],
)
def test_other_orders_of_the_threads_find_the_same(file, order):
    for name, function, kind, line in PLANTED:
        if name == file:
            expect_bug(file, function, kind, line, order)
    for name, function in CORRECT:
        if name == file:
            expect_nothing(file, function, order)


def in_turn(cases: list[Case]) -> list:
    """Each case in each type, the shapes in turn, so that an op meets each type with each shape.

    Products, which take long, have one: test_ops_robust.py has them in 16 bits, in several tiles.
    """
    return [
        pytest.param(case, dtype, SHAPES[(number + step) % 2], marks=param.marks)
        for number, param in enumerate(mostly_slow(cases))
        for case in param.values
        for step, dtype in enumerate((torch.float32, torch.float16)[: 2 - case.is_product])
    ]


@pytest.mark.parametrize(("case", "dtype", "shape"), in_turn(CASES), ids=str)
def test_nothing_is_found_in_our_own_kernels(case, dtype, shape):
    compile_checks(case.op.name)
    report = checked_case(case, dtype, *shape)
    assert report.findings.empty, str(report)
    assert not report.traffic.empty


@pytest.mark.slow
@pytest.mark.parametrize(("order", "dtype"), [(0, torch.float32), (1, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("case", [case for case in BEST if case.widest >= 65536], ids=str)
def test_nothing_is_found_in_our_own_kernels_of_wide_rows(case, order, dtype):
    """Those of clusters and asynchronous copies, whose sums go from block to block."""
    report = checked_case(case, dtype, 3, 65536, thread_order=order)
    assert report.findings.empty, str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("case", mostly_slow(MOVERS), ids=str)
def test_the_fastest_version_moves_what_it_must(case, dtype):
    """Each input once and each output once, and no more than 5% besides: saved statistics, sums."""
    report = lab.check(case.ours, **case.inputs(32, 4096, dtype), sample_threads=1 << 30)
    assert report.findings.empty, str(report)
    assert report.bytes_fetched <= 1.05 * report.bytes_floor, str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("case", mostly_slow(MOVERS), ids=str)
def test_the_fastest_version_moves_what_it_must_for_gradients(case, dtype):
    """Forward as it is recorded, and backward: as above, but for the partial sums of a weight's.

    They are written once and read once. Two-byte types write the floats of a vector in two pieces,
    each half of the sectors that it touches. Functions of other names, which a formula calls beside
    the op's backward, are for gradients that hardly anybody wants, and are not judged.
    """
    kernel = module_of(case.op.name).kernel
    with Calls(kernel.library.stem) as calls:
        outcome(case.ours, case.inputs(256, 1024, dtype))
    names = "forward", "backward"
    judged = [call for call in calls.noted if any(n in call[0]._opname for n in names)]
    assert len(judged) == (2 if hasattr(kernel, "backward") else 1), judged
    for op, arguments in judged:
        report = lab.check(getattr(kernel, op._opname), *arguments, sample_threads=1 << 30)
        assert report.findings.empty, str(report)
        partial = report.tensors[~report.tensors["counts"]]
        once = partial["bytes_read"].sum() + partial["bytes_written"].sum()
        most = 1.05 * report.bytes_floor + (1.5 if dtype == torch.float16 else 1.0) * once
        assert report.bytes_fetched <= most, str(report)


UPDATES = """
__global__ void counted(const float* x, float* y, int set) {  // bins above `set` hold nothing
    __shared__ int bins[32];
    if (threadIdx.x < set) bins[threadIdx.x] = 0;
    __syncthreads();
    bins[int(x[threadIdx.x]) % 32]++;
    __syncthreads();
    y[threadIdx.x] = bins[threadIdx.x % 32];
}
__global__ void summed(const float* x, float* y, int set) {
    __shared__ float sums[8];
    if (threadIdx.x < set) sums[threadIdx.x] = 0;
    __syncthreads();
    sums[threadIdx.x % 8] += x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = sums[threadIdx.x % 8];
}
__global__ void shifted(const float* x, float* y, int) {  // a barrier would do
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
    return written(tmp_path_factory.mktemp("updates") / "updates.cu", UPDATES)


@pytest.mark.parametrize(
    ("name", "set_", "found"),
    [
        ("counted", 16, {"race", "uninitialised"}),
        ("counted", 32, {"race"}),
        ("summed", 0, {"race", "uninitialised"}),
        ("summed", 8, {"race"}),
        ("shifted", 0, {"race"}),
    ],
)
@pytest.mark.parametrize("order", [0, 3])
def test_what_the_first_reads_in_any_order_is_told_beside_the_race(
    updates, name, set_, found, order
):
    kernel = getattr(updates, name)[1, 64]
    report = lab.check(kernel, torch.arange(64.0), torch.zeros(64), set_, thread_order=order)
    assert kinds(report) == found, str(report)
