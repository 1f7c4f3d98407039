"""What the loader knows of compilers: command lines, errors, depfiles, the sources they read."""

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jitloader.arguments import recipe_of
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import compile as compiling
from toolchain import machine, sources
from toolchain.code import Recipe
from toolchain.command_line import checked_flags, for_ninja, for_nvcc
from toolchain.errors import CompileError, first_error, hint_for
from toolchain.objects import Earlier
from toolchain.signatures import NUMBERS, POINTERS, Parameter

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

CLANG_TEMPLATE = """\
In file included from {path}:1:
/usr/include/c++/12/bits/predefined_ops.h:45:23: error: invalid operands to binary expression
{path}:4:10: note: in instantiation of function template specialization 'std::sort<A *>' requested
"""

GCC_CHAIN = """\
In file included from /usr/include/x.h:71,
                 from {path}:3:
/usr/include/y.h:45:23: error: no such thing
"""

GCC_UNKNOWN_TYPE = """\
{path}:3:11: error: variable or field \u2018f\u2019 declared void
{path}:3:13: error: \u2018half\u2019 was not declared in this scope
{path}:3:20: error: expected primary-expression before \u2018int\u2019
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
        pytest.param(GCC_CHAIN, (3, None), "no such thing", 0, id="g++ through headers"),
        pytest.param(GCC_UNKNOWN_TYPE, (3, 13), "was not declared", 2, id="g++ of a parameter"),
        pytest.param(CLANG_TEMPLATE, (4, 10), "invalid operands", 0, id="clang in a header"),
    ],
)
def test_the_first_error_is_told_at_the_users_own_line(source, output, place, message, others):
    error = first_error(output.format(path=source), {source}, source.with_suffix(".log"))
    assert (error.path, (error.line, error.column)) == (source, place)
    assert message in error.message
    assert error.others == others
    assert str(error).splitlines()[1].endswith(source.read_text().splitlines()[place[0] - 1])


@pytest.mark.parametrize("name", ["a:b.cu", "a(1): b.cu", "$x|y;.cu", "two\u2019s.cu"])
@pytest.mark.parametrize("output", [NVCC, NVCC_TEMPLATE, GCC_TEMPLATE])
def test_an_error_is_told_at_its_line_in_a_file_of_any_name(tmp_path, name, output):
    path = tmp_path / name
    path.write_text("\n" * 9)
    error = first_error(output.format(path=path), {path}, path)
    assert error.path == path
    assert error.line in (3, 4)


@pytest.mark.parametrize(
    "said",
    [
        "\u2018half\u2019 was not declared in this scope",
        "\u2018half\u2019 does not name a type",
        "unknown type name '__half2'",
        'identifier "half" is undefined',
        "use of undeclared identifier '__float2half'",
    ],
)
def test_half_without_its_header_is_answered_with_it(said):
    assert "#include <cuda_fp16.h>" in hint_for(said)
    assert "#include <cuda_bf16.h>" in hint_for("unknown type name '__nv_bfloat16'")
    assert "cuda_fp16" not in hint_for(re.sub(r"\w*half\w*", "halfway", said))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("float v = x[t]\n if (t) x[0] = v;", "a semicolon is missing"),
        ("int i\n if (t) x[0] = 1;", "a semicolon is missing"),
        ("x[0] = 1\n if (t) x[0] = 2;", "a semicolon is missing"),
        ("g(x)\n while (t) x[0] = 2;", "a semicolon is missing"),
        ("x[0] = (1 + t;", "a parenthesis or a bracket is not closed"),
        ("x[0] = x[1;", "a parenthesis or a bracket is not closed"),
        ("if (t < 3 x[0] = 1;", "a parenthesis or a bracket is not closed"),
        ("for (int i = 0, i < t, i++) x[i] = 1;", "the parts of a loop are separated"),
        ("struct uint3 { int x; } all; int i = all;", "threadIdx.x"),
        ("f<<1, t>>(x, t);", "a launch has three angle brackets"),
        ("static float s[t];", "the size of a __shared__ array is a constant"),
        ("}}", "a } too many"),
        ("g(\u201cx\u201d);", "type it anew"),
        ("x[0] = t \u2013 1;", "type it anew"),
        ("\u00a0x[0] = t;", "type it anew"),
        ("}\n```", "Markdown"),
        ("}\n1 int second() {", "a line cannot begin with a number"),
        ("# twice", "begins with //"),
        ("}\nvoid h(int t):\n  t = 1;\n{", "stands in braces"),
        ("x[0] = x[1] ^ 2;", "^ is exclusive or"),
        ("} _global_ void k() {", "two underscores on either side"),
    ],
)
def test_a_slip_of_the_pen_is_told_by_the_compilers_words(tmp_path, text, hint):
    source = tmp_path / "x.cpp"
    source.write_text(f"void g(float*);\nvoid f(float* x, int t) {{\n {text}\n}}\n")
    said = subprocess.run(["c++", "-fsyntax-only", source], capture_output=True, text=True).stderr
    found = first_error(said, {source}, source).hint
    assert found is None if hint is None else hint in found
    assert "semicolon" in hint_for('expected a ";"')  # nvcc


def test_a_few_further_errors_are_shown_one_of_each_line(source):
    lines = (1, 2, 2, 3, 4, 5, 5)
    said = "".join(f"{source}:{line}:3: error: wrong in {line}\n" for line in lines)
    error = first_error(said, {source}, source.with_suffix(".log"))
    assert [each.line for each in error.further] == [2, 3, 4]
    assert str(error).count("error: wrong in 2") == 1
    assert "x.cu:4:3: error: wrong in 4\n    4 |     std::sort(a, b);" in str(error)
    assert "(3 more errors in the log)" in str(error)


def test_an_error_without_a_line_still_has_its_message_and_hint(source):
    error = first_error(PTXAS, {source}, source)
    assert error.path is None
    assert "uses too much shared data" in error.message
    assert "extern __shared__" in error.hint


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("c++: error: unrecognized command-line option '-fnope'\n", "unrecognized command-line"),
        ("cc1plus: error: argument to '-O' should be an integer\n", "argument to '-O' should"),
        ("<command-line>: fatal error: no.h: No such file\n", "no.h: No such file"),
        ("clang++-19: error: unknown argument: '-fnope'\n", "unknown argument: '-fnope'"),
        ("nvcc fatal   : Unknown option '-fnope'\n", "Unknown option '-fnope'"),
    ],
)
def test_what_a_compiler_says_of_its_flags_is_the_message(source, output, message):
    output = f"[1/2] c++ -c x.cpp\nFAILED: 0.o\n{output}ninja: build stopped: subcommand failed.\n"
    assert message in first_error(output, {source}, source).message


@pytest.mark.parametrize(
    "said",
    [
        "c++: error: unrecognized command-line option '-keysonly'\n",
        "clang++: error: unknown argument: '-keysonly'\n",
        "nvcc fatal   : Unknown option '-keysonly'\n",
    ],
)
def test_what_may_be_an_argument_of_the_program_is_told_where_it_belongs(said):
    assert "come after --" in first_error(said, set(), Path("the.log")).hint


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
        ("""char q = '"'; } // PYBIND11_MODULE would be "slow\"""", "c"),
        ('const char* said = "PYBIND11_MODULE";', "c"),
        ("int n = 1'000; TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {} char c = 'x';", "ops"),
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
        extern "C" { static int helper;  int two() { return 2; } void three(void) { two('}'); } }
        extern "C" int declared_only(int n);
        const char* source = R"(extern "C" void quoted() {})";
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
        ("const uint* n", ("n", "unsigned int", True)),
        ("long unsigned int n", ("n", "unsigned long", False)),
        ("short int", ("argument 2", "short", False)),
        ("const float4 *v", ("v", "float4", True)),
    ],
)
def test_a_parameter_is_read_from_its_declaration(declaration, parameter):
    found = Parameter.parse(declaration, 2)
    assert (found.name, found.type, found.pointer) == parameter


def test_a_tensor_of_a_type_has_the_size_and_the_sign_of_a_number_of_it():
    both = POINTERS.keys() & NUMBERS.keys()
    assert len(both) > 20
    for name in both:
        dtype, number = POINTERS[name], NUMBERS[name]
        assert dtype.itemsize == ctypes.sizeof(number), name
        if not dtype.is_floating_point and dtype != torch.bool:
            assert (torch.iinfo(dtype).min < 0) == (number(-1).value < 0), name


@pytest.mark.parametrize(
    "declaration", ["float** x", "S s", "float2 v", "const char* text", "cudaStream_t* s"]
)
def test_a_parameter_that_python_cannot_pass_is_refused(declaration):
    with pytest.raises(TypeError, match="write a binding"):
        Parameter.parse(declaration, 1)


def test_a_depfile_is_read_with_its_escapes(tmp_path):
    depfile = tmp_path / "x.o.d"
    depfile.write_text("x.o: a.cu \\\n my\\ folder/b.h \\\n /abs/../c$$.h\n")
    wanted = [tmp_path / "a.cu", tmp_path / "my folder/b.h", Path("/c$.h")]
    assert sources.read_depfile(depfile) == wanted


NAMES = st.text("ab $#:;|'()%&,\u00e9*~", min_size=1, max_size=6).map("x{}x.h".format)


@settings(max_examples=20, deadline=None)
@given(NAMES)
def test_a_depfile_names_headers_of_any_name(name):
    with tempfile.TemporaryDirectory() as folder:
        source, depfile = Path(folder, "a.cpp"), Path(folder, "a.d")
        source.write_text(f'#include "{name}"\n')
        source.with_name(name).touch()
        subprocess.run(["g++", "-MM", "-MF", depfile, source], check=True)
        assert source.with_name(name) in sources.read_depfile(depfile)


def test_dots_after_a_symbolic_link_lead_where_the_system_goes(tmp_path):
    (tmp_path / "b/real").mkdir(parents=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/link").symlink_to(tmp_path / "b/real")
    for name in ("a/v.h", "b/v.h"):
        (tmp_path / name).touch()
    found = sources.file_in(tmp_path / "a/link", "../v.h")
    assert Path(found).samefile(f"{tmp_path}/a/link/../v.h")
    assert sources.file_in(tmp_path / "a/link", "x.h") == f"{tmp_path}/a/link/x.h"
    assert sources.file_in(tmp_path / "a", "link/..") == f"{tmp_path}/b"
    assert sources.file_in(tmp_path / "a", "sub/../v.h") == f"{tmp_path}/a/v.h"


# ---- command lines

ODD = st.text("ab1 \u00e9>`()$'\"\\;&|#<,*?~!{}[]%=:", max_size=8).map(str.strip)


def argument_of(command: str, holds: str) -> str | None:
    """The first argument with `holds` in it that a shell makes of a command."""
    said = subprocess.run(
        ["sh", "-c", f"print() {{ printf '%s\\0' \"$@\"; }}; print {command}"],
        capture_output=True,
        text=True,
    ).stdout
    return next((word for word in said.split("\0") if holds in word), None)


@settings(max_examples=25, deadline=None)
@given(st.lists(ODD, min_size=1, max_size=20))
@example(["3>2", "`touch x`", "(1+2)", "sizeof(int)", "unsigned int", "$HOME", "$in", "a\\", " "])
def test_a_flag_comes_through_ninja_and_the_shell_as_it_is(values):
    flags = [f"-DV={value}" for value in values]
    with tempfile.TemporaryDirectory() as folder:
        words = " ".join(map(for_ninja, flags))
        rule = f"rule say\n  command = printf '%s\\0' {words} > $out\nbuild out: say\n"
        Path(folder, "build.ninja").write_text(rule)
        subprocess.run(["ninja", "-C", folder], check=True, capture_output=True)
        assert Path(folder, "out").read_text().split("\0")[:-1] == flags
        made = {file.name for file in Path(folder).iterdir()}
        assert made <= {"build.ninja", "out", ".ninja_log"}


@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
@pytest.mark.parametrize("option", ["-D{}", "-Xcompiler=-D{}"])
@settings(max_examples=40, deadline=None)
@given(ODD)
@example("f(1,2)")
@example('"a\\"b"')
@example("\\")
@example("1 ,")
def test_a_flag_comes_through_nvccs_own_shell_as_it_is(option, value):
    if "Xcompiler" in option:
        value = value.replace(",", "")  # separates options there
    flags = for_nvcc([option.format(f"VV={value}")])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.cu")
        source.touch()
        command = [machine.cuda_home() / "bin/nvcc", "--dryrun", "-c", source, *flags]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    commands = [line[3:] for line in said.splitlines() if "VV=" in line]
    assert argument_of(commands[0], "VV=").removeprefix("-D").strip() == f"VV={value}".strip()


def test_nvccs_flags_may_come_in_two_words_and_others_are_checked():
    assert for_nvcc(["-D", "V=$x", "-O3", "-I/a b"]) == ["-D", r"V=\\$x", "-O3", "-I/a b"]
    for flag in ("-Xptxas=$(x)", "-I/a`b", "-O3;x"):
        with pytest.raises(ValueError, match=f"{re.escape(repr(flag))}: nvcc gives this flag to"):
            for_nvcc([flag])
    with pytest.raises(ValueError, match=r"'-O3 -g'; wanted a list of \['-O3', '-g'\]"):
        for_nvcc(["-O3 -g"])


def test_flags_that_are_none_are_named():
    with pytest.raises(TypeError, match=r"flags is '-DX'; wanted a list.*\['-DX'\]"):
        checked_flags("-DX", "cpu")
    with pytest.raises(TypeError, match="flags holds 3; wanted are strings"):
        checked_flags([3], "cpu")
    with pytest.raises(ValueError, match="cannot hold the end of a line"):
        checked_flags(["-DX=1\n2"], "cpu")
    with pytest.raises(ValueError, match=r"flags\[0\] is '@file': give the flags that this file"):
        checked_flags(["@file"], "cpu")


@pytest.mark.parametrize("target", machine.TARGETS)
def test_a_word_that_is_no_flag_is_named_before_anything_is_built(target):
    for flags, place in [(["b"], 0), (["-O3", "b"], 1), (["-I", "dir", "b"], 2), (["-DX", "b"], 1)]:
        says = rf"flags\[{place}\] is 'b', which is not a flag.*'-DNAME=value'.*load\('my.cu', "
        with pytest.raises(ValueError, match=says):
            checked_flags(flags, target)
    pairs = [("-include", "x.h"), ("-I", "dir"), ("-D", "X"), ("-isystem", "dir"), ("-x", "c++")]
    if target == "cuda":
        pairs += [("-Xptxas", "-v"), ("-Xptxas", "v"), ("--maxrregcount", "32"), ("-rdc", "true")]
    for pair in pairs:
        assert checked_flags(pair, target) == pair
        with pytest.raises(ValueError, match=r"flags\[2\] is 'b'"):
            checked_flags([*pair, "b"], target)


# ---- the machine


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
    is_users = compiling._users(recipe)
    assert is_users(users / "op.cu")
    assert is_users(tmp_path / "home/others.h")
    assert not is_users(own / "vector")
    assert not is_users(compiling.SIMULATOR / "include/cuda.h")


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


def test_what_starts_the_compiler_and_is_missing_is_what_is_to_be_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-cache g++ -m64")
    with pytest.raises(machine.MissingTool) as caught:
        machine.compiler_versions("cpu", tmp_path)
    assert str(caught.value) == (
        "'no-such-cache' is not on PATH, and CXX is 'no-such-cache g++ -m64': install it, or leave"
        " it out"
    )
    monkeypatch.setenv("CXX", "env no-such-compiler")
    with pytest.raises(machine.MissingTool, match=r"no C\+\+ compiler: 'no-such-compiler'.*apt"):
        machine.compiler_versions("cpu", tmp_path)


@pytest.mark.parametrize(
    ("says", "release"),
    [
        ("Debian clang version 14.0.6", 14),
        ("Ubuntu clang version 15.0.7", 15),
        ("Debian clang version 16.0.6 (15~deb12u1)", None),
        ("clang version 22.1.8", None),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", None),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", None),
    ],
)
def test_a_clang_that_is_too_old_is_refused(monkeypatch, tmp_path, says, release):
    compiler = tmp_path / "my++"
    compiler.write_text(f"#!/bin/sh\necho '{says}'\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    if release:
        with pytest.raises(machine.MissingTool, match=f"clang {release}, .* need clang 16"):
            machine.compiler_versions("cpu", tmp_path)
    else:
        said = machine.compiler_versions("cpu", tmp_path)
        assert machine.is_clang(said) is ("clang" in says)


@pytest.mark.parametrize(
    ("setting", "command", "flags"),
    [
        ("g++ -m64", ["g++"], ["-m64"]),
        ("ccache g++ -O2 '-DX=a b'", ["ccache", "g++"], ["-O2", "-DX=a b"]),
        ("g++", ["g++"], []),
    ],
)
def test_cxx_may_name_several_words(monkeypatch, setting, command, flags):
    monkeypatch.setenv("CXX", setting)
    assert machine.cxx_command() == (command, flags)
    monkeypatch.setenv("CXX", f"{setting} '")
    with pytest.raises(machine.MissingTool, match="could read: No closing quotation"):
        machine.cxx_command()


def test_what_is_asked_of_a_source_anyway_is_asked_while_the_compilers_work(tmp_path, monkeypatch):
    known = []

    def compiled(folder, watch, *_):
        watch("")
        known.append("exports" in vars(inputs))
        raise compiling._Failed("op.cu:1:1: error: as this test wants it")

    monkeypatch.setattr(compiling, "_run_build", compiled)
    monkeypatch.setattr(compiling.precompiled, "added_to", lambda text, *_: text)
    (tmp_path / "op.cu").write_text('extern "C" void f(float* x) {}\n')
    inputs = Inputs.read(recipe_of([tmp_path / "op.cu"], target="cpu"), Cache.here())
    earlier = Earlier([""], {}, [tmp_path / "stub_libraries"], [])
    (tmp_path / "work").mkdir()
    with pytest.raises(CompileError, match="as this test wants it"):
        compiling.compile_library(inputs, "op_0", tmp_path / "work", tmp_path / "log", str, earlier)
    assert known == [True]
