"""The loader: what is built when, what runs after an edit, and what a broken source says.

Most sources here hold no kernel: what an edit, a cache or a binding does is the same with plain
C++, and such a source compiles in a fraction of a second on any machine.
"""

import importlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from jit_cases import ENDLESS, answer, compilers_in, in_process, load, output_of, wait_for, write

import jitload
from jitloader import commands, inputs
from toolchain import compile as compiling
from toolchain import machine

pytestmark = pytest.mark.usefixtures("in_scratch")


# ---- building and the cache


def test_a_second_process_opens_the_cached_library_and_builds_nothing(monkeypatch, capfd):
    monkeypatch.setattr("jitloader.events.listeners", [])  # whatever other tests have left
    monkeypatch.setattr("jitloader.events._prints", True)
    answer(7, "opened_twice")
    assert load("opened_twice.cu").answer() == 7
    assert "building opened_twice for cpu" in capfd.readouterr().err
    code = """
        import time
        started = time.process_time()
        kernel = jitload.load("opened_twice.cu", target="cpu")
        print(kernel.answer(), time.process_time() - started)
        print(*sorted({"ninja", "filelock", "torch.utils.cpp_extension"} & sys.modules.keys()))
    """
    result, *modules = output_of(code).splitlines()
    value, seconds = result.split()
    assert int(value) == 7
    assert modules in ([], [""]), "a warm load imports nothing of the build's"
    assert float(seconds) < 0.1  # of a processor, which others may use; the figure is 3 ms


def test_the_same_sources_give_the_same_handle():
    answer(1)
    assert load("answer.cu") is load("answer.cu")
    assert load("answer.cu") is not load("answer.cu", flags=["-DOTHER"])


def test_flags_name_and_include_reach_the_compiler(tmp_path):
    write("elsewhere/three.h", "#define THREE 3")
    source = 'extern "C" int sum() { return THREE + FOUR; }'
    write("sum.cu", "#include <three.h>\n" + source)
    kernel = load("sum.cu", name="seven-of-nine", flags=["-DFOUR=4"], include=["elsewhere"])
    assert kernel.sum() == 7
    assert kernel.name == "seven_of_nine"


def test_flags_reach_the_compiler_as_they_are_written():
    values = ["3>2", "`touch pwned`", "(1+2)", "sizeof(int)", "unsigned int", "$HOME $in", "'q'"]
    values += ['"a\\\\b"', "a;b", "a&b|c", "#x", "gr\u00f6\u00dfe", "foo.cu", "{a,b}", "*?~!"]
    texts = ", ".join(f"TEXT(V{n})" for n in range(len(values)))
    source = write(
        "flags.cu",
        f"""
        #define TEXT_(...) #__VA_ARGS__
        #define TEXT(...) TEXT_(__VA_ARGS__)
        static const char* texts[] = {{{texts}}};
        extern "C" int byte(int n, int place) {{ return (unsigned char)texts[n][place]; }}
        """,
    )
    kernel = load(source, flags=[f"-DV{n}={value}" for n, value in enumerate(values)])
    for n, value in enumerate(values):
        wanted = [*value.encode(), 0]
        assert [kernel.byte(n, place) for place in range(len(wanted))] == wanted
    assert not list(Path().rglob("pwned"))


@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_flags_reach_nvccs_compilers_as_they_are_written(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    source = write(
        "flagged.cu",
        """
        constexpr bool same(const char* a, const char* b) {
            return *a == *b && (!*a || same(a + 1, b + 1));
        }
        static_assert(A == 1 && sizeof(B) == 4 && C == 6 && same(D, "`touch pwned` $HOME"));
        static_assert(E == 'e');
        """,
    )
    flags = ["-DA=3>2", "-DB=unsigned int", "-DC=int(1+2)*2", '-DD="`touch pwned` $HOME"']
    jitload.ensure(source, target="cuda", flags=[*flags, "-DE='e'"])
    assert not list(Path().rglob("pwned"))


def test_a_flag_in_place_of_a_source_is_answered_with_its_place():
    answer(1)
    with pytest.raises(TypeError, match=r"'-Dfoo.cu' is no source; .* flags=\['-Dfoo.cu'\]"):
        load("answer.cu", "-Dfoo.cu")


def test_paths_may_hold_what_ninja_and_shells_interpret():
    """Beside it: sources of one name, k.cc beside k.cpp, a source named twice, a long name."""
    write("a:b $c|d;e/k.cu", '#include "h$:.h"\nint two(), three();\n' + SUM)
    header = write("a:b $c|d;e/h$:.h", "#define ONE 1")
    write("other/k.cu", "int two() { return 2; }")
    write("a:b $c|d;e/k.cc", "int three() { return 3; }")
    write("a:b $c|d;e/k.cpp", "int four() { return 4; }")
    folder = Path("a:b $c|d;e")
    sources = [folder / "k.cu", "other/k.cu", folder / "k.cc", folder / "k.cpp", folder / "k.cu"]
    kernel = load(*sources, name="n" * 300)
    assert kernel.sum() == 6
    header.write_text("#define ONE 10")
    assert kernel.reload()
    assert kernel.sum() == 15
    header.write_text("#define ONE oops")
    with pytest.raises(jitload.CompileError, match="oops") as caught:
        kernel.reload()
    assert caught.value.path.parent.name == folder.name
    header.write_text("#define ONE 1")


SUM = 'extern "C" int sum() { return ONE + two() + three(); }\n'


def test_paths_that_no_compiler_can_be_given_are_named():
    with pytest.raises(ValueError, match=r"two\\nlines.* holds '\\n', which a compiler cannot"):
        load(answer(1, "two\nlines"))
    with pytest.raises(ValueError, match=r"a,b.cu' holds ',', which nvcc cannot read: rename it"):
        jitload.recipe_of([answer(1, "a,b")], target="cuda")
    assert load("a,b.cu").answer() == 1


def test_dots_lead_through_a_symbolic_link_as_in_nvcc():
    """The header beside the link's target is read, its edits are seen, the other one is not."""
    write("real/kernels/linked.cu", '#include "../v.h"\nextern "C" int answer() { return V; }')
    header = write("real/v.h", "#define V 1 // __global__")
    other = write("v.h", "#define V 2")
    Path("link").symlink_to("real/kernels")
    kernel = load("link/linked.cu")
    assert kernel.answer() == 1
    header.write_text("#define V 3")
    assert kernel.reload()
    assert kernel.answer() == 3
    other.write_text("#define V 4")
    assert not kernel.reload()
    assert load("link/../kernels/linked.cu").answer() == 3


def test_a_header_in_a_linked_folder_is_translated():
    write("real/deep/inner.cuh", '#include "../outer.cuh"\n')
    launch = "__global__ void k(int* x) { *x = 5; }\nvoid go(int* x) { k<<<1, 1>>>(x); }\n"
    write("real/outer.cuh", launch)
    Path("near").symlink_to("real/deep")
    body = 'extern "C" void answer(int* x) { go(x); }\n'
    kernel = load(write("through.cu", f'#include "near/inner.cuh"\n{body}'))
    kernel.answer(x := torch.zeros(1, dtype=torch.int32))
    assert x == 5


def test_an_included_cu_is_translated_and_may_begin_with_a_byte_order_mark():
    launch = "__global__ void k(int* x) { *x = 5; }\nvoid go(int* x) { k<<<1, 1>>>(x); }\n"
    other = write("other.cu", "")
    other.write_text(launch, encoding="utf-8-sig")
    body = 'extern "C" void answer(int* x) { go(x); }\n'
    source = write("marked.cu", "")
    source.write_text(f'#include "other.cu"\n{body}', encoding="utf-8-sig")
    kernel = load("marked.cu")
    kernel.answer(x := torch.zeros(1, dtype=torch.int32))
    assert x == 5
    other.write_text(launch.replace("5", "oops"), encoding="utf-8-sig")
    with pytest.raises(jitload.CompileError) as caught:
        kernel.reload()
    assert (caught.value.path, caught.value.line, caught.value.column) == (other, 1, 34)
    assert "\ufeff" not in str(caught.value)


def test_cxx_may_hold_flags(monkeypatch):
    monkeypatch.setenv("CXX", "env g++ -m64 '-DANSWER=4 + 3'")
    assert load(answer("ANSWER", "with_flags")).answer() == 7


def test_one_build_found_in_two_caches_is_opened_once(tmp_path, monkeypatch):
    """A second library of the same namespace would end the process."""
    write("twin.cpp", STABLE.replace("FACTOR", "-1"))
    first = load("twin.cpp", name="twin")
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr("jitloader.handle._kernels", {})  # as a second handle would find it
    second = load("twin.cpp", name="twin")
    assert second is not first
    assert second.digest == first.digest
    assert second.twice(torch.ones(1)).item() == 2


def test_an_interrupt_ends_the_compilers_and_the_next_load_works(tmp_path):
    """A notebook's stop button: SIGINT to the kernel's process alone."""
    write("slow.cpp", f"{ENDLESS}\nint x = Slow<double, 800>::value;")
    write("slow.cu", 'extern "C" int answer() { return 3; }')
    process = in_process(
        """
        try:
            jitload.load("slow.cu", "slow.cpp", target="cpu")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()  # the notebook lives on
        """,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    wait_for(lambda: compilers_in(tmp_path), "the compiler to start")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().strip() == "interrupted"
    wait_for(lambda: not compilers_in(tmp_path), "the compilers to end", 20)
    write("slow.cpp", "int x;")
    process.communicate("\n", timeout=60)
    assert load("slow.cu", "slow.cpp").answer() == 3


@pytest.mark.skipif(not shutil.which("setpriv"), reason="util-linux's setpriv is not here")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_dies_of_a_signal_takes_its_compilers_along(tmp_path, by):
    write("slow.cpp", f"{ENDLESS}\nint x = Slow<double, 800>::value;")
    process = in_process('jitload.load("slow.cpp", target="cpu")')
    wait_for(lambda: compilers_in(tmp_path), "the compiler to start")
    process.send_signal(by)
    process.communicate(timeout=60)
    wait_for(lambda: not compilers_in(tmp_path), "the compilers to end", 20)


# ---- edits


def test_an_edit_is_live_after_reload_and_a_name_taken_before_follows():
    answer(1)
    kernel = load("answer.cu")
    taken = kernel.answer
    assert not kernel.reload()
    answer(2)
    assert kernel.reload()
    assert kernel.answer() == taken() == 2


def test_a_header_that_only_a_macro_names_is_seen_through_the_depfile():
    write("hidden.h", "#define HIDDEN 1")
    source = '#define NAME "hidden.h"\n#include NAME\nextern "C" int answer() { return HIDDEN; }'
    write("macro.cu", source)
    kernel = load("macro.cu")
    assert kernel.answer() == 1
    write("hidden.h", "#define HIDDEN 2")
    assert kernel.reload()
    assert kernel.answer() == 2


def test_with_the_project_among_the_folders_no_header_of_the_simulators_is_an_input():
    """Another checkout with the same cache would take that for a file to rewrite."""
    write("kernel.cu", "__global__ void k(float* x) { x[0] = 1; }")
    kernel = load("kernel.cu", include=[jitload.KERNELS.parent])
    assert not [name for name in kernel.build.inputs if "simulator" in name]


@pytest.mark.slow
def test_a_compiler_that_links_its_own_libstdcxx_makes_kernels_that_share_none_of_it():
    compiler = write(
        "compiler",
        """
        #!/bin/sh
        case "$*" in */runtime.cpp*) set -- "$@" -O0;; esac  # which is not what is tried
        exec g++ "$@" -static-libstdc++
        """,
    )
    compiler.chmod(0o755)
    write(
        "stream.cu",
        """
        #include <sstream>
        extern "C" long digits(long number) {
            std::ostringstream text;
            text << number;
            return text.str().size();
        }
        """,
    )
    code = f"""
        import os, subprocess
        os.environ["CXX"] = {str(compiler)!r}
        kernel = jitload.load("stream.cu", target="cpu")
        print(kernel.digits(12345))
        library = kernel.builds()[-1].library
        exported = ["nm", "--dynamic", "--defined-only", "--demangle", library]
        print(subprocess.run(exported, capture_output=True, text=True, check=True).stdout)
    """
    digits, exported = output_of(code).split("\n", 1)
    assert digits == "5"
    assert " digits" in exported
    assert "std::" not in exported


def test_versions_live_side_by_side_and_statics_are_not_shared():
    """Under the GNU ABI a template's static is one object a process, unless a build prevents it."""
    source = """
        template <class T> int* counter() {{ static int count = {start}; return &count; }}
        extern "C" int count() {{ return ++*counter<int>(); }}
    """
    write("counting.cu", source.format(start=0))
    kernel = load("counting.cu")
    assert (kernel.count(), kernel.count()) == (1, 2)
    write("counting.cu", source.format(start=100))
    kernel.reload()
    assert kernel.count() == 101
    old = kernel.at(1)
    assert (old.count(), kernel.count()) == (3, 102)
    new, first = kernel.builds()
    assert new.when >= first.when
    assert new.digest == kernel.digest
    assert kernel.at(first.digest[:8]).build == kernel.at(first).build == first
    assert (first.folder / "sources/0_counting.cu").read_text().count("count = 0") == 1


def test_a_version_that_is_not_there_is_named_with_those_that_are():
    answer(1, "lonely")
    kernel = load("lonely.cu")
    with pytest.raises(LookupError, match=rf"'feed' of lonely .* 0: {kernel.digest}"):
        kernel.at("feed")
    with pytest.raises(LookupError, match="build 3 of lonely"):
        kernel.at(3)


@pytest.mark.parametrize("first_text", ["1", "oops"])
def test_an_edit_during_the_build_wins_and_leaves_nothing_wrong_in_the_cache(
    monkeypatch, first_text
):
    name = f"hasty_{first_text}"
    answer(first_text, name)
    compile_library = compiling.compile_library

    def edit_meanwhile(*arguments):
        answer(2, name)
        return compile_library(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("toolchain.compile.compile_library", edit_meanwhile)
        kernel = load(f"{name}.cu")
    assert kernel.answer() == 2
    assert len(kernel.builds()) == 1
    answer(3, name)
    assert kernel.reload()
    assert kernel.answer() == 3


# ---- broken sources


def test_a_broken_edit_raises_until_it_is_mended():
    answer(1, "broken")
    kernel = load("broken.cu")
    answer("1 +", "broken")
    said = set()
    for attempt in (kernel.reload, kernel.reload, kernel.answer, lambda: load("broken.cu")):
        with pytest.raises(jitload.CompileError) as error:
            attempt()
        said.add(str(error.value))
    assert len(said) == 1, "the same error, however often it is asked for"
    answer(2, "broken")
    assert kernel.reload()
    assert kernel.answer() == 2
    answer("1 +", "broken")
    with pytest.raises(jitload.CompileError):
        kernel.reload()
    answer(2, "broken")
    assert not kernel.reload(), "the sources are again those of the newest build"
    assert kernel.answer() == 2


def test_an_error_begins_at_the_users_own_line():
    path = write("wrong.cu", '//\nextern "C" int answer() {\n\treturn nothing;\n}\n')
    with pytest.raises(jitload.CompileError) as caught:
        load("wrong.cu")
    error = caught.value
    assert (error.path, error.line, error.column) == (path, 3, 9)
    assert error.log.is_file()
    lines = str(error).splitlines()
    assert lines[0].startswith(f"{path}:3:9: error: \u2018nothing\u2019 was not")
    assert lines[1] == "    3 | \treturn nothing;"
    assert lines[2] == "      | \t       ^"
    assert lines[3].startswith("hint: check the spelling")
    assert len(lines) <= 20


def test_an_error_inside_a_system_header_is_told_at_the_users_line():
    write(
        "template.cu",
        """
        #include <algorithm>
        struct Thing {};
        extern "C" int answer() {
            Thing things[2];
            std::sort(things, things + 2);
            return 0;
        }
        """,
    )
    with pytest.raises(jitload.CompileError) as caught:
        load("template.cu")
    assert (caught.value.path.name, caught.value.line) == ("template.cu", 5)


def test_a_missing_header_says_where_headers_are_looked_for():
    write("lost.cu", '#include "nowhere.h"\n')
    with pytest.raises(jitload.CompileError, match=r"lost.cu:1:.*nowhere.h") as caught:
        load("lost.cu")
    assert "load(include=[...])" in caught.value.hint


def test_a_binding_without_its_launcher_says_what_is_missing():
    write("half.cu", "int other() { return 0; }")
    write(
        "half.cpp",
        """
        #include <torch/csrc/stable/library.h>
        #include <torch/csrc/stable/tensor.h>
        int launch(int n);
        int64_t answer(int64_t n) { return launch(n); }
        STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("answer(int n) -> int"); }
        STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
            m.impl("answer", TORCH_BOX(&answer));
        }
        """,
    )
    with pytest.raises(jitload.CompileError, match=r"undefined symbol: launch\(int\)") as caught:
        load("half.cu", "half.cpp")
    assert "no .cu defines" in caught.value.hint


@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_nvcc_compiles_for_a_machine_that_has_no_gpu_and_its_errors_are_told_alike(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 9.0+PTX")
    kernel = "__global__ void fill(float* x) { x[threadIdx.x] = ANSWER; }\n"
    launch = 'extern "C" void run(float* x, cudaStream_t s) { fill<<<1, 32, 0, s>>>(x); }\n'
    path = write("fill.cu", kernel + launch)
    library = jitload.ensure(path, target="cuda", flags=["-DANSWER=42"]).library
    assert b"sm_80" in library.read_bytes()
    with pytest.raises(jitload.CompileError) as caught:
        jitload.ensure(path, target="cuda")
    error = caught.value
    assert (error.path, error.line, error.column) == (path, 1, kernel.index("ANSWER") + 1)
    assert "ANSWER" in error.message


def test_cuda_that_the_simulator_cannot_run_is_told_at_its_line():
    path = write("ptx.cu", '__global__ void k() {\n    asm("frobnicate.u32;");\n}\n')
    with pytest.raises(jitload.CompileError, match=r"frobnicate\.u32") as caught:
        load("ptx.cu")
    assert (caught.value.path, caught.value.line, caught.value.column) == (path, 2, 5)


def test_what_load_cannot_take_is_said():
    with pytest.raises(FileNotFoundError, match=r"no op 'layernorm'.*square"):
        jitload.load("layernorm")
    with pytest.raises(FileNotFoundError, match=r"nothing\.cu"):
        jitload.load("nothing.cu")
    with pytest.raises(FileNotFoundError, match=r"no source .*n\.cu: File name too long"):
        jitload.load("n" * 300 + ".cu")
    Path("folder.cu").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no source .*folder.cu: it is a folder"):
        jitload.load("folder.cu")
    write("notes.txt", "")
    with pytest.raises(ValueError, match=r"notes.txt: wanted a .cu or .cpp"):
        jitload.load("notes.txt")
    with pytest.raises(ValueError, match=r"target is 'gpu'; wanted one of cuda, cpu"):
        jitload.load("square", target="gpu")
    with pytest.raises(TypeError, match="wants the name of an op"):
        jitload.load()


def test_a_function_that_is_not_there_is_answered_with_those_that_are():
    answer(1, "named")
    with pytest.raises(AttributeError, match=r"'named' has no function 'forwards'; it has: answer"):
        load("named.cu").forwards  # noqa: B018


# ---- the four kinds of binding


STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor twice(const Tensor& x) { return torch::stable::subtract(x, x, FACTOR); }
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("twice", TORCH_BOX(&twice));
}
"""  # x - FACTOR x, with FACTOR -1 or -2: the edit of these tests

TORCH_LIBRARY = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>
at::Tensor twice(const at::Tensor& x) { return x.mul(1 - FACTOR); }
TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""

PYBIND11 = """
#include <torch/csrc/utils/pybind.h>
at::Tensor twice(at::Tensor x) { return x.mul(1 - FACTOR); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(STABLE, id="stable"),
        pytest.param(TORCH_LIBRARY, id="TORCH_LIBRARY", marks=pytest.mark.slow),
        pytest.param(PYBIND11, id="pybind11", marks=pytest.mark.slow),
    ],
)
def test_a_binding_is_called_and_swapped(source):
    write("bound.cpp", source.replace("FACTOR", "-1"))
    kernel = load("bound.cpp", flags=["-O0"])  # half the time to compile
    x = torch.arange(3.0)
    torch.testing.assert_close(kernel.twice(x), 2 * x)
    write("bound.cpp", source.replace("FACTOR", "-2"))
    assert kernel.reload()
    torch.testing.assert_close(kernel.twice(x), 3 * x)
    torch.testing.assert_close(kernel.at(1).twice(x), 2 * x)


@pytest.mark.slow
def test_a_module_with_an_autograd_function_of_its_own():
    write(
        "function.cpp",
        """
        #include <torch/extension.h>
        struct Cube : torch::autograd::Function<Cube> {
            static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor x) {
                ctx->save_for_backward({x});
                return x * x * x;
            }
            static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                                         torch::autograd::tensor_list grads) {
                auto x = ctx->get_saved_variables()[0];
                return {3 * x * x * grads[0]};
            }
        };
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
            m.def("cube", [](at::Tensor x) { return Cube::apply(x); });
        }
        """,
    )
    kernel = load("function.cpp", flags=["-O0"])
    x = torch.arange(3.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kernel.cube, x)


def test_without_a_binding_c_functions_take_tensors():
    write(
        "plain.cu",
        """
        #include <cstdint>
        extern "C" void axpy(float a, const float* x, float* __restrict__ y, int64_t n,
                             cudaStream_t stream) {
            for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
        }
        extern "C" {
        cudaError_t status(unsigned int code) { return static_cast<cudaError_t>(code); }
        double half(double value) { if (value) { value /= 2; } return value; }
        }
        """,
    )
    kernel = load("plain.cu")
    x, y = torch.arange(4.0), torch.ones(4)
    assert kernel.axpy(2, x, y, 4) is None
    assert y.tolist() == [1, 3, 5, 7]
    assert kernel.half(5) == 2.5
    assert kernel.status(0) is None
    for code in (1, 9):
        with pytest.raises(RuntimeError, match=r"^status: cudaError"):
            kernel.status(code)
    for arguments, kind, message in [
        ((2, x, y), TypeError, r"takes 4 arguments \(a, x, y, n\), 3 were given"),
        ((2, x.double(), y, 4), TypeError, r"axpy: x is torch.float64; wanted torch.float32"),
        ((2, x, [1.0], 4), TypeError, r"axpy: y is a list; wanted a tensor"),
        (("2", x, y, 4), TypeError, r"axpy: a is a str; wanted a number \(float\)"),
        ((2, x, y, 4.5), TypeError, r"axpy: n is 4.5; wanted a whole number"),
        ((2, x[::2], y, 2), ValueError, r"axpy: x is not contiguous \(strides \(2,\)\)"),
        ((2, x.to("meta"), y, 4), ValueError, r"axpy: x is on meta; this build is for cpu"),
    ]:
        with pytest.raises(kind, match=message):
            kernel.axpy(*arguments)


def test_a_c_function_that_python_cannot_call_says_which_parameter():
    write("odd.cu", 'struct S {};\nextern "C" void odd(S* s) {}')
    kernel = load("odd.cu")
    with pytest.raises(AttributeError, match=r"parameter 'S\* s'"):
        kernel.odd(torch.ones(1))


# ---- formulas


def differentiable(name: str):
    """y = 2 x (or 3 x after an edit), with fake and autograd registered on the handle."""
    write(f"{name}.cpp", STABLE.replace("FACTOR", "-1"))
    kernel = load(f"{name}.cpp")

    @kernel.register_fake("twice")
    def _(x):
        return torch.empty_like(x)

    kernel.register_autograd("twice", lambda ctx, grad: kernel.twice(grad))
    return kernel


def test_formulas_are_replayed_for_a_new_build_and_an_old_one():
    kernel = differentiable("replayed")
    x = torch.ones(3, requires_grad=True)
    assert torch.autograd.grad(kernel.twice(x).sum(), x)[0].tolist() == [2, 2, 2]
    write("replayed.cpp", STABLE.replace("FACTOR", "-2"))
    kernel.reload()
    assert torch.autograd.grad(kernel.twice(x).sum(), x)[0].tolist() == [3, 3, 3]
    old = kernel.at(1).twice(x)
    assert old.tolist() == [2, 2, 2]
    assert old.requires_grad


def test_a_formula_registered_again_takes_the_place_of_the_first():
    kernel = differentiable("again")
    x = torch.ones(2, requires_grad=True)
    kernel.register_autograd("twice", lambda ctx, grad: 10 * grad)
    assert torch.autograd.grad(kernel.twice(x).sum(), x)[0].tolist() == [10, 10]


WITH_INFER = """
#include <optional>
#include <tuple>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor filled(const Tensor& x, double value) {
    Tensor y = torch::stable::empty_like(x);
    torch::stable::fill_(y, value);
    return y;
}
std::tuple<Tensor, Tensor> forward(Tensor x, std::optional<Tensor>) {
    return {filled(x, 1), filled(x, 2)};
}
Tensor infer(Tensor x) { return filled(x, 3); }
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor? buffer=None) -> (Tensor, Tensor)");
    m.def("infer(Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("infer", TORCH_BOX(&infer));
}
"""


def test_an_op_without_statistics_runs_where_no_gradient_is_wanted():
    write("chosen.cpp", WITH_INFER)
    kernel = load("chosen.cpp")
    call = kernel.register_autograd("forward", lambda ctx, *grads: (grads[0], None), infer="infer")
    x = torch.zeros(2)
    leaf = torch.zeros(2, requires_grad=True)
    assert call(x).tolist() == [3, 3]
    assert call(x, None).tolist() == [3, 3]
    assert call(x, torch.zeros(2)).tolist() == [1, 1], "infer takes no buffer"
    assert call(leaf).tolist() == [1, 1]
    assert torch.autograd.grad(call(leaf).sum(), leaf)[0].tolist() == [1, 1]
    with torch.no_grad():
        assert call(leaf).tolist() == [3, 3]
    assert kernel.forward(x)[1].tolist() == [2, 2], "the op itself gives all of its results"


@pytest.mark.slow
def test_a_compiled_function_picks_the_new_build_up_more_often_than_dynamo_recompiles():
    kernel = differentiable("compiled")
    compiled = torch.compile(lambda x: kernel.twice(x) + 1, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    for factor in range(1, 12):
        write("compiled.cpp", STABLE.replace("FACTOR", f"-{factor}"))
        kernel.reload()
        y = compiled(x)
        assert y.tolist() == [factor + 2] * 2
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [factor + 1] * 2


@pytest.mark.slow
def test_a_compiled_function_raises_the_error_of_a_broken_build():
    kernel = differentiable("compiled_broken")
    compiled = torch.compile(lambda x: kernel.twice(x) + 1, backend="aot_eager")
    x = torch.ones(2)
    compiled(x)
    write("compiled_broken.cpp", STABLE)
    with pytest.raises(jitload.CompileError):
        kernel.reload()
    with pytest.raises(Exception, match="FACTOR"):
        compiled(x)
    write("compiled_broken.cpp", STABLE.replace("FACTOR", "-4"))
    kernel.reload()
    assert compiled(x).tolist() == [6, 6]


def test_the_digest_covers_the_code_of_the_formulas_and_not_their_comments(tmp_path):
    path = write("formulas.py", 'def f(x):\n    """Doc."""\n    return x\n')
    digest = inputs.formulas_of(path)
    write("formulas.py", 'def f(x):  # comment\n    """Other doc."""\n    return x\n')
    assert inputs.formulas_of(path) == digest
    write("formulas.py", 'def f(x):\n    """Doc."""\n    return 2 * x\n')
    assert inputs.formulas_of(path) != digest


def test_formulas_are_parsed_once_for_all_processes(tmp_path, monkeypatch):
    path = write("parsed_once.py", "def f(x):\n    return x\n")
    digest = inputs.formulas_of(path)
    with monkeypatch.context() as patched:
        patched.setattr(inputs.ast, "parse", None)
        assert inputs.formulas_of(path) == digest
    write("parsed_once.py", "def f(x):\n    return x + 1\n")
    assert inputs.formulas_of(path) != digest


def test_a_formula_outside_the_digest_keeps_compiled_gradients_off_the_disk():
    import torch._functorch.config as functorch

    with functorch.patch(enable_autograd_cache=True):
        differentiable("notebook")
        assert not functorch.enable_autograd_cache
    with functorch.patch(enable_autograd_cache=True):
        importlib.reload(importlib.import_module("kernels.square"))
        assert functorch.enable_autograd_cache


# ---- targets and the command line


def test_the_default_target_follows_the_machine_and_the_environment(monkeypatch):
    monkeypatch.delenv("JITLOAD_TARGET", raising=False)
    possible = torch.cuda.is_available() and machine.cuda_home() is not None
    assert jitload.default_target() == ("cuda" if possible else "cpu")
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    assert jitload.device() == torch.device("cpu")
    monkeypatch.setenv("JITLOAD_TARGET", "tpu")
    with pytest.raises(ValueError, match="JITLOAD_TARGET is 'tpu'; wanted one of cuda, cpu"):
        jitload.default_target()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_the_cuda_target_is_refused_with_the_way_out():
    answer(1)
    with pytest.raises(RuntimeError, match=r"needs a GPU.*simulator.*build --target cuda"):
        jitload.load("answer.cu", target="cuda")


def test_debug_builds_are_builds_of_their_own(monkeypatch):
    """Every build has line numbers; one for debugging has variables too, and is not optimised."""
    write(
        "debugged.cu",
        """
        extern "C" int optimised() {
            int told = 0;
        #ifdef __OPTIMIZE__
            told = 1;
        #endif
            return told;
        }
        """,
    )

    def variables(library: Path) -> str:
        return subprocess.run(
            ["readelf", "--debug-dump=info", library], capture_output=True, text=True, check=True
        ).stdout

    plain = load("debugged.cu")
    monkeypatch.setenv("JITLOAD_DEBUG", "1")
    debug = load("debugged.cu")
    assert debug.digest != plain.digest
    assert (plain.optimised(), debug.optimised()) == (1, 0)
    assert "DW_TAG_variable" in variables(debug.library)
    assert "DW_TAG_variable" not in variables(plain.library)


def test_build_reports_each_kernel_and_fails_with_the_broken_one(capfd, monkeypatch):
    kernels = Path("kernels").absolute()
    answer(1, "kernels/good")
    answer("+", "kernels/poor")
    monkeypatch.setattr("jitloader.arguments.KERNELS", kernels)
    monkeypatch.setattr("jitloader.events._prints", True)
    assert commands.main(["build", "--target", "cpu"]) == 1
    out = capfd.readouterr().out.splitlines()
    assert [line.split()[:3] for line in out if line.startswith("[")] == [
        ["[1/4]", "simulator", "cpu"],
        ["[2/4]", "good", "cpu"],
        ["[3/4]", "poor", "cpu"],
        ["[4/4]", "derivatives", "cpu"],
    ]
    assert any("poor.cu:1:" in line for line in out)
    assert commands.main(["build", "good", "--target", "cpu"]) == 0
    assert "(cached)" in capfd.readouterr().out


def test_doctor_names_what_is_missing_and_its_remedy(capfd, monkeypatch):
    monkeypatch.setattr(machine, "cuda_home", lambda: None)
    assert commands.main(["doctor"]) == 0
    out = capfd.readouterr().out
    assert "target cpu   builds: yes  runs: yes" in out
    assert "target cuda  builds: no  runs: no" in out
    assert "pip install nvidia-cuda-nvcc" in out.split("target cuda")[1]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert commands.main(["doctor"]) == 1
    out = capfd.readouterr().out
    said = "no C++ compiler: 'no-such-compiler' is not on PATH. Debian: apt install g++"
    assert f"missing  C++ compiler   {said}" in out
    assert "target cpu   builds: no" in out


def test_doctor_believes_no_compiler_that_compiles_nothing(capfd, monkeypatch):
    monkeypatch.setattr(machine, "cuda_home", lambda: None)
    monkeypatch.setenv("CXX", "c++ -include no_such_header.h")
    assert commands.main(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "ok       C++ compiler" in out
    assert "target cpu   builds: no  runs: no" in out
    assert "no_such_header.h" in out.split("target cpu")[1]


@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_doctor_proves_that_nvcc_compiles(capfd, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert commands.tried("cuda") == (True, torch.cuda.is_available(), None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "2.0")
    builds, runs, why = commands.tried("cuda")
    assert (builds, runs) == (False, False)
    assert "compute_20" in str(why)


def test_prune_keeps_the_newest_within_the_limits(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "small"))
    folders = []
    for age, name in enumerate(["newest_0", "older_0", "oldest_0"]):
        folder = tmp_path / "small" / name
        folder.mkdir(parents=True)
        (folder / "lib.so").write_bytes(bytes(1000))
        (folder / "build.json").write_text("{}")
        then = time.time() - age * 10 * 86400
        os.utime(folder / "build.json", (then, then))
        folders.append(folder)
    commands.main(["prune", "--days", "15"])
    assert [folder.exists() for folder in folders] == [True, True, False]
    commands.main(["prune", "--gigabytes", str(1500 / 1e9)])
    assert [folder.exists() for folder in folders] == [True, False, False]
    commands.main(["prune", "--gigabytes", "0"])
    assert not folders[0].exists()
    assert "freed 0.0 MB" in capfd.readouterr().out


def test_the_manifest_tells_what_a_build_was_made_of():
    answer(1, "told")
    kernel = load("told.cu")
    manifest = json.loads((kernel.library.parent / "build.json").read_text())
    assert manifest["torch"] == torch.__version__
    assert any(path.endswith("told.cu") for path in manifest["inputs"])
    assert kernel.seconds == manifest["seconds"] > 0
