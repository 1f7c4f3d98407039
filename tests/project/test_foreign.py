"""docs.programs.foreign: what is tried of a stranger's folder, and what is said of it."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from jit_cases import write

from docs.programs import foreign, foreign_calls, foreign_page, foreign_words
from docs.programs.foreign_cases import cases
from docs.programs.foreign_sizes import Smaller


@pytest.mark.parametrize(
    ("status", "said", "verdict"),
    [
        (0, "Test PASSED\n", "right"),
        (0, "All results match. Starting benchmarks.\n", "right"),
        (0, "Max error: 0.000000\n", "right"),
        (0, "Max error: 12.5\n", "runs"),
        (0, "0 errors, success\n", "right"),
        (0, "COMPLETED SUCCESSFULLY\n", "right"),
        (0, "C[0] = 4\n", "runs"),
        (0, "", "runs"),
        (0, "Test FAILED\n", "wrong"),
        (0, "Test PASSED\nError at 3: 4 vs 5\nmismatch\n", "wrong"),
        (0, "Results do not match\n", "wrong"),
        (0, "an error of CUDA that the program does not show: kernel k\nTest PASSED", "wrong"),
        (1, "Test PASSED\n", "wrong"),
        (2, "needs two GPUs, waived\n", "waived"),
        (1, "Usage: a.out N\n", "arguments"),
    ],
)
def test_a_program_is_judged_by_its_status_and_its_words(status, said, verdict):
    assert foreign_words.verdict(status, said)[0] == verdict


CHOOSES = """
    // switch (kernel_num) { case 9: } is only said here
    void run(int kernel_num) { switch (kernel_num) { case 1: break; case 3: { break; } } }
    int main(int argc, char** argv) {
        int kernel_num = 1;
        if (argc > 1) kernel_num = atoi(argv[1]);
        switch (argc) { case 7: break; }
    }
"""


@pytest.fixture
def strangers(tmp_path):
    """A folder with a sample of each kind."""
    here = tmp_path / "repository"
    write(f"{here}/sample/main.cpp", "int main() { return half(4); }")
    write(f"{here}/sample/half.cu", '#include "shared.h"\nint half(int n) { return n / 2; }')
    write(
        f"{here}/sample/CMakeLists.txt",
        "project(sample)\n# add_executable(no no.cu)\nset(SRC half.cu)\n"
        "add_library(library STATIC ../library/add.cu)\n"
        "add_executable(${PROJECT_NAME} main.cpp ${SRC})\n"
        "target_link_libraries(${PROJECT_NAME} PRIVATE library)\n",
    )
    write(f"{here}/library/add.cu", "int add(int n) { return n; }")  # of the sample alone
    write(f"{here}/Common/shared.h", "int half(int n);")
    write(f"{here}/many/chooses.cu", CHOOSES)
    write(f"{here}/many/part.cuh", "")
    write(f"{here}/many/included.cu", "__global__ void k() {}")
    write(f"{here}/many/kernels.cu", '#include "included.cu"\n')
    write(f"{here}/many/window.cu", "#include <GL/gl.h>\nint main() {}")
    write(f"{here}/many/ptx.cu", '__device__ void f() { asm volatile("nop;"); }')
    return here


def test_what_is_tried_of_a_folder(strangers):
    found = {case.name: case for case in cases(strangers)}
    assert list(found) == [
        "many/chooses.cu",
        "many/kernels.cu",
        "many/ptx.cu",
        "many/window.cu",
        "sample",
    ]
    sample = found["sample"]
    assert sample.kind == "program"
    assert [path.name for path in sample.files] == ["main.cpp", "half.cu", "add.cu"]
    assert strangers / "Common" in sample.include
    assert found["many/chooses.cu"].arguments == (("1",), ("3",))
    assert (found["many/kernels.cu"].kind, found["many/ptx.cu"].needs) == (
        "kernels",
        ("inline PTX",),
    )
    assert found["many/window.cu"].graphics
    before = sample.digest
    (strangers / "Common/shared.h").write_text("int half(int);")
    assert {case.name: case.digest for case in cases(strangers)}["sample"] != before


RIGHT = r"""
    #include <cstdio>
    __global__ void one(int* x) { *x = 1; }
    int main() {
        int x = 0, *y;
        cudaMalloc(&y, 4);
        one<<<1, 1>>>(y);
        cudaMemcpy(&x, y, 4, cudaMemcpyDeviceToHost);
        std::puts(x == 1 ? "Test PASSED" : "Test FAILED");
        if (x == SLEEPS) for (;;) sleep(1);
    }
"""


@pytest.mark.slow
def test_a_folder_is_tried_and_told_of(in_scratch, tmp_path, capsys):
    here = tmp_path / "repository"
    write(f"{here}/right.cu", "#include <unistd.h>\n#define SLEEPS 9\n" + RIGHT)
    write(f"{here}/hung.cu", "#include <unistd.h>\nint main() { for (;;) sleep(1); }")
    write(f"{here}/crash.cu", "int main() { *(volatile int*)8 = 1; }")
    write(f"{here}/broken.cu", "int main() { return unknown; }")
    write(f"{here}/kernels.cu", "__global__ void k(float* x) { *x = 1; }")
    write(f"{tmp_path}/COMMITS", "somebody+repository 1234\n")
    table = tmp_path / "table.csv"
    options = [str(here), "--target", "cpu", "--out", str(table), "--kept", str(tmp_path / "kept")]
    foreign.main([*options, "--seconds", "10"])
    with table.open() as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "broken.cu": "no build",
        "crash.cu": "crashed",
        "hung.cu": "hung",
        "kernels.cu": "loads",
        "right.cu": "right",
    }
    assert "'unknown' was not declared" in rows["broken.cu"]["why"]
    assert rows["kernels.cu"]["why"] == "k"
    assert foreign.commit_of(Path(here)) == "somebody/repository at 1234"
    assert "| repository | 5 | 1 |" in capsys.readouterr().out

    # Known results are used, and another file's table is joined by name and digest.
    foreign.main([*options, "--known"])
    ours = foreign.read(table)
    assert [row.verdict for row in ours] == [row["verdict"] for row in rows.values()]
    theirs = [row if row.file != "right.cu" else replace(row, verdict="wrong") for row in ours]
    page = foreign.page(ours, other=theirs, own={})
    assert "4 of 5 runs have the same verdict on a GPU" in page
    assert "| right | wrong | 1 |" in page


def test_a_program_is_made_smaller_by_a_number_of_its_own(tmp_path):
    here = tmp_path / "repository"
    write(f"{here}/main.cu", '#include "sizes.h"\nint main() { return N; }')
    write(f"{here}/sizes.h", "#define N 4096\n")
    smaller = Smaller("repository", "main.cu", {"N 4096": "N 16"}, flags=("-DCHECK",))
    paths = [here / "main.cu", here / "sizes.h"]
    copies = smaller.copies(paths, here, tmp_path / "copy")
    assert copies[here / "main.cu"].read_text() == (here / "main.cu").read_text()
    assert (tmp_path / "copy/sizes.h").read_text() == "#define N 16\n"
    assert smaller.said == "smaller, N 16 for N 4096, -DCHECK"
    with pytest.raises(ValueError, match="has no M 1 any more"):
        replace(smaller, numbers={"M 1": "M 2"}).copies(paths, here, tmp_path / "copy")


def test_headers_and_kernels_that_can_be_called_are_tried_as_well(tmp_path):
    here = tmp_path / "fast.cu"
    write(f"{here}/examples/matmul/matmul_7.cuh", "namespace M7 { void runKernel7(int M) {} }")
    write(f"{here}/examples/matmul/helpers.cuh", "int helper();")
    (case,) = cases(here)
    assert case.name == "examples/matmul/matmul_7.cuh"
    text, function = case.call.text(case.files[0])
    assert function == "runKernel7"
    assert "runKernel7(m, n, k, (bf16*)a, (bf16*)b, (bf16*)c, nullptr);" in text
    assert f'#include "{case.files[0]}"' in text


class Multiplies:
    """A library whose product is off by a factor."""

    def __init__(self, factor: float):
        self.factor = factor

    def call(self, a, b, c, *_):
        c.copy_(self.factor * (a.float() @ b.float().T))


@pytest.mark.parametrize(("factor", "is_right"), [(1, True), (1.1, False), (float("nan"), False)])
def test_what_is_called_is_compared_with_pytorch(factor, is_right):
    call = foreign_calls.call_of("learn-cuda", "02b_matmul_sm80/matmul_v1.cu")
    assert (call.check(Multiplies(factor), "") <= call.limit) == is_right


def test_whose_fault_it_is():
    row = foreign.Row("a", "x.cu", "1", "program", "TMA", "right", "1", "1", "OK")
    others = {"y.cu": "wrong", "z.cu": "refused", "s.cu": "slow"}
    rows = [row, *(replace(row, file=name, verdict=said) for name, said in others.items())]
    text = "\n".join(foreign_page.faults(rows, {("a", "z.cu"): "for Blackwell"}))
    assert "1 of the other 3 did not end in time. Of the 2 that did, 50% are right" in text
    assert "Of 4 runs 1 fail by the file's own fault" in text
    assert "a/z.cu" not in text
    assert "| a/y.cu | wrong | `OK` |" in text


def test_what_is_not_tried_now_stays_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "ROOT", tmp_path)
    row = foreign.Row("a", "x.cu", "1", "program", "", "right", "1", "1", "OK")
    docs = tmp_path / "docs"
    docs.mkdir()
    foreign.write(docs / "foreign.csv", [row, replace(row, source="b", verdict="wrong")])
    write(f"{docs}/foreign_sources.csv", "source,repository,commit\na,one/a,12\nb,two/b,34\n")
    write(f"{docs}/foreign_own.csv", "source,file,why\n")
    written = []
    monkeypatch.setattr(foreign.Part, "write", lambda part, text: written.append(text))
    write(f"{tmp_path}/COMMITS", "one+a 56\n")
    options = foreign.parser().parse_args([str(tmp_path / "a"), "--csv", str(docs / "foreign.csv")])
    foreign.tell([replace(row, verdict="slow")], options, earlier=0)
    assert [(r.source, r.verdict) for r in foreign.read(docs / "foreign.csv")] == [
        ("a", "slow"),
        ("b", "wrong"),
    ]
    lines = (docs / "foreign_sources.csv").read_text().splitlines()
    assert lines[1:] == ["a,one/a,56,1,1", "b,two/b,34,1,1"]
    assert "1 of these were tried with an earlier state" in written[0]
