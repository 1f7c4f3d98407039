"""What nvcc takes of sources beyond CUDA's own words: several of them, macros, scopes, launches.

Where there is a GPU, the same sources run there as well: what these tests expect is CUDA's doing.
"""

from pathlib import Path

import pytest
import torch

import jitload
import lab

SOURCES = Path(__file__).parent / "kernels"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]


def fixture(name: str, *sources: str):
    @pytest.fixture(scope="module", params=TARGETS, name=name)
    def kernels(request):
        paths = [str(SOURCES / source) for source in sources]
        return jitload.load(*paths, name=f"test_{name}", target=request.param)

    return kernels


architecture = fixture("architecture", "architecture.cu")
launches = fixture("launches", "launches.cu")
dialect = fixture("dialect", "dialect.cu")
several = fixture("several", "several/first.cu", "several/second.cu")


def integers(kernel, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device=kernel.target)


# ---- several sources


@pytest.mark.parametrize(("name", "value"), [("first", 1), ("second", 10)])
def test_templates_are_shared_by_the_sources_of_a_load(several, name, value):
    y = torch.zeros(8, device=several.target)
    getattr(several, name)(y)
    assert y.tolist() == [value + i for i in (3, 2, 1, 0, 3, 2, 1, 0)]
    getattr(several, f"{name}_by_launcher")(y)
    assert y.tolist() == [value + i for i in (0, 1, 2, 3, 0, 1, 2, 3)]


def test_each_source_has_a_copy_of_a_headers_variables(several):
    for name, value in (("first", 1), ("second", 10)):
        y = torch.arange(8.0, device=several.target)
        counts = [getattr(several, f"{name}_turned")(y) for _ in range(2)]
        assert y.tolist() == [i + 2 * value for i in range(8)]
        assert counts[1] == counts[0] + 1


def test_several_sources_under_the_checker():
    paths = [str(SOURCES / f"several/{name}.cu") for name in ("first", "second")]
    kernel = jitload.load(*paths, name="test_several", target="cpu")
    for name, value in (("first", 1), ("second", 10)):
        y = torch.zeros(8)
        assert lab.check(getattr(kernel, name), y).findings.empty
        getattr(kernel.instrumented(), name)(y)
        assert y.tolist() == [value + i for i in (3, 2, 1, 0, 3, 2, 1, 0)]


# ---- __CUDA_ARCH__ and __CUDACC__


def test_the_architecture_is_known_in_device_code_alone(architecture):
    y = integers(architecture, 19)
    architecture.run_architecture(y)
    arch = y[6].item()
    if architecture.target == "cpu":
        assert arch == 900
    expected = [1, 2, 3, 4, 5, 6, arch, 80, arch // 2, arch + 5, arch + 5, 11, 12, 14]
    assert y[:14].tolist() == expected
    assert architecture.run_host() == 3


def lines_that_hold(text: str) -> list[int]:
    lines = (SOURCES / "architecture.cu").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line]


def test_macros_that_depend_on_the_architecture_are_others_in_device_code(architecture):
    y = integers(architecture, 19)
    architecture.run_architecture(y)
    assert y[14:].tolist() == [4, 8, 2, lines_that_hold("__LINE__")[0], 6]
    assert architecture.run_macros() == 121


def test_nvcc_says_that_it_is_nvcc_and_lines_stay(architecture):
    assert architecture.run_nvcc() == 1001 + lines_that_hold("__LINE__")[1]


# ---- launches


def test_defaults_of_kernels(launches):
    y = integers(launches, 22)
    launches.run_defaults(y)
    assert y.tolist() == [2, 4, 6, 8, 2, 4, 6, 0, 0, 1, 0, 0, 5, 0, 0, 0, 4, 6, 7, 24, 46, 86]


def test_scopes_and_bounds_of_kernels(launches):
    y = integers(launches, 128)
    launches.run_scopes(y)
    assert y.tolist() == [1, 2, 3, 4] + [5] * 32 + [0] * 28 + [32] * 64


def test_kernels_through_pointers_and_parameters(launches):
    y = integers(launches, 13)
    launches.run_pointers(y)
    assert y.tolist() == [1, 2, 3, 4, 4, 1, 6, 8, 10, 11, 12, 13, 1]


def test_launches_by_macros(launches):
    y = integers(launches, 6)
    launches.run_macros(y, 0)
    assert y.tolist() == [1, 2, 3, 4, 5, 1]


# ---- words and forms of CUDA C++


def test_variables_of_the_device(dialect):
    y = torch.zeros(9, device=dialect.target)
    assert dialect.run_variables(y) == 10
    assert y.tolist() == [3, 4, 10, 8, 4, 7, 8, 8, 11]


def test_shared_memory_of_every_form(dialect):
    y = torch.zeros(24, device=dialect.target)
    z = torch.zeros(12, dtype=torch.float64, device=dialect.target)
    dialect.run_shared(y, z)
    # thread i adds what thread j = n - 1 - i has stored: j, 2j, j + 1, j + 1, j; and 3 + 4 + 4
    assert y[:8].tolist() == [6 * j + 13 for j in range(7, -1, -1)]
    assert z[:4].tolist() == [6 * j + 13 for j in range(3, -1, -1)]
    assert y[8:16].tolist() == [7] * 8
    assert z[4:8].tolist() == [3] * 4
    assert y[16:].tolist() == [i ^ 1 for i in range(8)]
    assert z[8:].tolist() == [i ^ 1 for i in range(4)]


def test_functions_and_hints_of_every_form(dialect):
    y = integers(dialect, 12)
    assert dialect.run_functions(y) == 21
    assert y.tolist() == [120, 7, 11, 24, 7, 7, 9, 17, 8, 9, 2, 8]


def test_an_include_by_an_absolute_path_leads_to_the_rewritten_file(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "near.cuh").write_text(
        "__global__ void near(float* y) { y[threadIdx.x] = 1; }\n"
        "inline void run_near(float* y) { near<<<1, 2>>>(y); }\n"
    )
    (folder / "absolute.cuh").write_text(
        '#include "near.cuh"\n'
        "inline void run_absolute(float* y) { run_near(y); near<<<1, 1>>>(y + 2); }\n"
    )
    (tmp_path / "other.cu").write_text("void run_other(float* y) { near<<<1, 1>>>(y + 3); }\n")
    source = tmp_path / "source.cu"
    source.write_text(
        f'#include "{folder}/absolute.cuh"\n#include "other.cu"\n'
        'extern "C" void run(float* y) { run_absolute(y); run_other(y); }\n'
    )
    kernel = jitload.load(str(source), target="cpu")
    y = torch.zeros(4)
    kernel.run(y)
    assert y.tolist() == [1] * 4


LIBRARY = """
#pragma once
__device__ inline int future(int x) {
    asm("warp.fold.b32 %0, %0;" : "+r"(x));
    return x;
}
__device__ inline int now(int x) { return x + 1; }
"""


def test_of_a_library_only_what_is_called_has_to_run(tmp_path):
    """Its headers lie in a folder of their own, and have more than a source uses."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "all.cuh").write_text(LIBRARY)
    source = tmp_path / "source.cu"
    source.write_text(
        "#include <all.cuh>\n"
        "__global__ void kernel(int* y, bool late) { y[0] = late ? future(7) : now(7); }\n"
        'extern "C" void run(int* y, bool late) { kernel<<<1, 1>>>(y, late); }\n'
    )
    kernel = jitload.load(str(source), target="cpu", include=[str(tmp_path / "library")])
    y = torch.zeros(1, dtype=torch.int32)
    kernel.run(y, False)
    assert y.item() == 8
    with pytest.raises(RuntimeError, match=r"all.cuh:4: .*does not know: warp.fold.b32"):
        kernel.run(y, True)
    source.write_text(LIBRARY)
    with pytest.raises(jitload.CompileError, match=r"does not know: warp.fold.b32"):
        jitload.load(str(source), target="cpu")


def test_headers_of_a_library_that_include_each_other_many_times(tmp_path):
    (tmp_path / "library").mkdir()
    for level in range(30):
        more = f"#include <level{level + 1}.h>\n" * 3 * (level < 29)
        text = f"#pragma once\n{more}#define LEVEL{level} {level}\n"
        (tmp_path / f"library/level{level}.h").write_text(text)
    source = tmp_path / "source.cu"
    source.write_text('#include <level0.h>\nextern "C" int last(int n) { return LEVEL29 + n; }\n')
    kernel = jitload.load(str(source), target="cpu", include=[str(tmp_path / "library")])
    assert kernel.last(1) == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("y", r"too few arguments to function .void k\(int\*, int, int\)"),
        ("y, 1, 2, 3", r"the kernel takes \(int\*, int, int\), and is launched with \(int\*&, int"),
        ("x, 1", "cannot convert"),
    ],
)
def test_arguments_that_a_kernel_does_not_take_are_an_error_at_the_launch(
    tmp_path, arguments, message
):
    source = tmp_path / "source.cu"
    source.write_text(
        "__global__ void k(int* y, int n, int more = 0) {}\n"
        f'extern "C" void run(int* y, float* x) {{\n    k<<<1, 1>>>({arguments});\n}}\n'
    )
    with pytest.raises(jitload.CompileError, match=message) as caught:
        jitload.load(str(source), target="cpu")
    assert caught.value.line == 3
