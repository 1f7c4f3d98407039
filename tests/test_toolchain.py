"""What the loader knows of compilers: their errors, their depfiles, the sources they read."""

from pathlib import Path

import pytest

from toolchain import compile as compiling
from toolchain import machine, sources
from toolchain.cfunctions import Parameter
from toolchain.errors import first_error
from toolchain.inputs import Recipe

NVCC = """\
[1/3] nvcc -c {path}
FAILED: x.cuda.o
{path}(3): error: identifier "nothing" is undefined
      float y = nothing + 1;
                ^

{path}(4): warning #177-D: variable "z" was declared but never referenced

{path}(5): error: expected a ";"
  }}
  ^

2 errors detected in the compilation of "{path}".
"""

NVCC_TEMPLATE = """\
/usr/local/cuda/include/vector.h(12): error #135: class "Thing" has no member "size"
          detected during instantiation of "void f(T) [with T=Thing]" at line 4 of {path}
1 error detected in the compilation of "{path}".
"""

GCC_TEMPLATE = """\
In file included from {path}:1:
/usr/include/c++/12/bits/stl_algo.h: In instantiation of 'void std::sort(T*)':
{path}:4:14:   required from here
/usr/include/c++/12/bits/stl_algo.h:1937:17: error: no match for 'operator<'
"""

PTXAS = (
    "ptxas error   : Entry function '_Z1kv' uses too much shared data (0x20000 bytes, 0xc000 max)"
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.cu"
    path.write_text("// 1\n// 2\n    float y = nothing + 1;\n    std::sort(a, b);\n}\n")
    return path


@pytest.mark.parametrize(
    ("output", "place", "message", "others"),
    [
        pytest.param(NVCC, (3, 15), 'identifier "nothing" is undefined', 1, id="nvcc"),
        pytest.param(NVCC_TEMPLATE, (4, None), "has no member", 0, id="nvcc in a header"),
        pytest.param(GCC_TEMPLATE, (4, 14), "no match for", 0, id="g++ in a header"),
    ],
)
def test_the_first_error_is_told_at_the_users_own_line(source, output, place, message, others):
    error = first_error(output.format(path=source), {source}, source.with_suffix(".log"))
    assert (error.path, (error.line, error.column)) == (source, place)
    assert message in error.message
    assert error.others == others
    assert str(error).splitlines()[1].endswith(source.read_text().splitlines()[place[0] - 1])


def test_an_error_without_a_line_still_has_its_message_and_hint(source):
    error = first_error(PTXAS, {source}, source)
    assert error.path is None
    assert "uses too much shared data" in error.message
    assert "extern __shared__" in error.hint


def test_output_that_holds_no_known_error_points_at_the_log(source):
    error = first_error("Killed", {source}, Path("the.log"))
    assert "the log says why" in error.message
    assert str(error).endswith("full log: the.log")


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", "ops"),
        ("TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", "ops"),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", "module"),
        ('// PYBIND11_MODULE(x, m)\nextern "C" void f() {}', "c"),
    ],
)
def test_how_a_source_binds(text, binding):
    assert sources.binding_of(text) == binding


@pytest.mark.parametrize(
    ("header", "full"),
    [
        ("torch/extension.h", True),
        ("ATen/core/Tensor.h", True),
        ("c10/cuda/CUDAStream.h", True),
        ("torch/csrc/stable/tensor.h", False),
        ("torch/headeronly/util/Half.h", False),
        ("torch_helper.h", False),
    ],
)
def test_which_headers_are_torchs_cpp_api(header, full):
    assert sources.includes_torch(f"#include <{header}>") is full


def test_exports_of_a_binding_and_of_c_functions():
    assert list(sources.exports('TORCH_LIBRARY(N, m) { m.def("f(Tensor x) -> Tensor", &f); }')) == [
        "f"
    ]
    code = """
        extern "C" void one(const float* x, // the input
                            int n) { if (n) { n = 2; } }
        void hidden(int n) {}
        extern "C" { static int helper;  int two() { return 2; } void three(void) { two(); } }
        extern "C" int declared_only(int n);
    """
    assert sources.exports(code) == {
        "one": {"returns": "void", "parameters": ["const float* x", "int n"]},
        "two": {"returns": "int", "parameters": []},
        "three": {"returns": "void", "parameters": []},
    }


@pytest.mark.parametrize(
    ("declaration", "parameter"),
    [
        ("const float* x", ("x", "float", True)),
        ("float *__restrict__ y", ("y", "float", True)),
        ("const c10::Half* h", ("h", "c10::Half", True)),
        ("const double x[]", ("x", "double", True)),
        ("unsigned long long n", ("n", "unsigned long long", False)),
        ("unsigned int", ("argument 2", "unsigned int", False)),
        ("std::int64_t n", ("n", "int64_t", False)),
        ("cudaStream_t stream", ("stream", "cudaStream_t", False)),
    ],
)
def test_a_parameter_is_read_from_its_declaration(declaration, parameter):
    found = Parameter.parse(declaration, 2)
    assert (found.name, found.type, found.pointer) == parameter


@pytest.mark.parametrize("declaration", ["float** x", "S s", "float2 v", "const char* text"])
def test_a_parameter_that_python_cannot_pass_is_refused(declaration):
    with pytest.raises(TypeError, match="write a binding"):
        Parameter.parse(declaration, 1)


def test_a_depfile_is_read_with_its_escapes(tmp_path):
    depfile = tmp_path / "x.o.d"
    depfile.write_text("x.o: a.cu \\\n my\\ folder/b.h \\\n /abs/../c$$.h\n")
    wanted = [tmp_path / "a.cu", tmp_path / "my folder/b.h", Path("/c$.h")]
    assert sources.read_depfile(depfile) == wanted


@pytest.mark.parametrize(
    ("setting", "archs"),
    [
        ("9.0", ["9.0"]),
        ("8.0 9.0+PTX", ["8.0", "9.0+PTX"]),
        ("8.0;9.0a", ["8.0", "9.0a"]),
        ("Ampere;Hopper", ["8.0", "8.6+PTX", "9.0+PTX"]),
        ("hopper", ["9.0+PTX"]),
    ],
)
def test_architectures_are_named_by_number_or_name(monkeypatch, setting, archs):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", setting)
    assert machine.architectures() == archs


def test_an_unknown_architecture_is_answered_with_what_is_known(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 Pentium")
    with pytest.raises(ValueError, match=r"TORCH_CUDA_ARCH_LIST names 'Pentium'.*Hopper"):
        machine.architectures()


def test_ptx_adds_the_virtual_architecture():
    assert machine.gencode("9.0+PTX") == [
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


def test_nvcc_is_found_in_its_wheel(monkeypatch, tmp_path):
    home = tmp_path / "nvidia/cu13"
    (home / "bin").mkdir(parents=True)
    (home / "bin/nvcc.profile").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert machine.cuda_home() == home
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    assert machine.cuda_home() == home, "a CUDA_HOME without nvcc is no toolkit"


def test_headers_of_a_compiler_installed_anywhere_are_no_users(monkeypatch, tmp_path):
    own, users = tmp_path / "opt/gcc/include", tmp_path / "home/kernels"
    own.mkdir(parents=True)
    compiler = tmp_path / "opt/gcc/c++"
    compiler.write_text(f'#!/bin/sh\nexec g++ -isystem {own} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("CPATH", str(tmp_path / "home"))
    recipe = Recipe("op", (users / "op.cu",), (), (), "cuda", debug=False)
    assert compiling._is_users(users / "op.cu", recipe)
    assert compiling._is_users(tmp_path / "home/others.h", recipe)
    assert not compiling._is_users(own / "vector", recipe)


@pytest.mark.parametrize("target", machine.TARGETS)
def test_a_missing_compiler_is_named_with_the_way_to_get_it(monkeypatch, tmp_path, target):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(machine, "cuda_home", lambda: Path("/cuda"))
    with pytest.raises(machine.MissingTool, match=r"'no-such-compiler'.*apt install g\+\+"):
        machine.compiler_versions(target, tmp_path)
    monkeypatch.setattr(machine, "cuda_home", lambda: None)
    if target == "cuda":
        with pytest.raises(machine.MissingTool, match="pip install nvidia-cuda-nvcc"):
            machine.compiler_versions(target, tmp_path)
