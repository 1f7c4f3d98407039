"""What is compiled for the host, and what for the GPU, where kernels are compiled one by one."""

import subprocess
from pathlib import Path

import pytest

from jitloader.arguments import recipe_of
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import host_code, kernel_fatbins, machine, nvcc_steps, sources

SOURCE = """
template <class T>
__global__ SOME_KERNEL(f<T>::x) void fill(const T* x, F<decltype(1)> y) {
#pragma unroll
    for (;;) { x; }
}
__global__ void declared(int x);
__global__ void branched(int x) {
#if A
    if (a) {
#else
    if (b) {
#endif
    }
}
__global__ void newer(int x) {
#if __CUDA_ARCH__ >= 900
    if (x) { x = 1; }
#else
    x = 2;
#endif
}
#define KERNEL(name) __global__ void name(int x) { \\
        x++; }
void host() { fill<<<1, 2>>>(1); }
"""


def test_for_the_host_kernels_are_empty_but_for_those_with_branches_of_the_preprocessor():
    left = host_code.without_bodies(SOURCE)
    assert left.count("\n") == SOURCE.count("\n")
    assert "for (;;)" not in left
    assert "x++" not in left
    start, end = SOURCE.index("#if __CUDA"), SOURCE.index("#endif\n}\n#define") + len("#endif")
    wanted = SOURCE[:start] + SOURCE[end:]
    for gone in ("#pragma unroll", "for (;;) { x; }", "x++;"):
        wanted = wanted.replace(gone, "")
    assert "".join(left.split()) == "".join(wanted.split())


@pytest.mark.parametrize(
    ("text", "is_left"),
    [
        ("constexpr int kSize = 3;", False),
        ("static constexpr const float kSize = 3 * (1 + 2);  // of a tile", False),
        ("ENDS(T)\nconstexpr int kSize = TUNABLE(kSize, 2);", False),
        ("__global__ void k() { use(kSize); }\nconstexpr int kSize = 3;  // kSize", False),
        ("constexpr int kSize = 3;\nint host() { return kSize; }", True),
        ("constexpr int kSize = 3;\n#define SIZE kSize", True),
        ("__global__ void __launch_bounds__(kSize) k() {}\nconstexpr int kSize = 3;", True),
        ("#define NAMED(x) k##x\nconstexpr int kSize = 3;", True),
        ("#define NAMED(x) a##x\nconstexpr int kNoSize = 3;", False),
        ("template <class T>\nconstexpr int kSize = sizeof(T);", True),
        ("#define HAS \\\nconstexpr int kSize = 3;", True),
    ],
)
def test_the_host_sees_no_constant_that_kernels_alone_name(text, is_left):
    texts = {Path("k.cu"): f"{text}\nint end;\n"}
    (left,) = host_code.texts_of(texts, "", host_code.without_bodies).values()
    assert ("Size =" in left) == is_left
    assert left.split("\n").index("int end;") == text.count("\n") + 1


@pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine")
@pytest.mark.parametrize(("header", "apart"), [("cstdint", True), ("torch/extension.h", False)])
def test_with_pytorchs_headers_kernels_are_not_compiled_one_by_one(tmp_path, header, apart):
    source = tmp_path / "k.cu"
    source.write_text(f"#include <{header}>\n__global__ void k(int* x) {{ *x = 1; }}\n")
    binding = tmp_path / "k.cpp"
    binding.write_text("#include <torch/extension.h>\n")
    recipe = recipe_of([source, binding], target="cuda")
    found = kernel_fatbins.on_demand(Inputs.read(recipe, Cache(tmp_path)), ())
    assert (found is not None) == apart


def test_unnamed_namespaces_get_a_name_where_they_stand():
    text = "namespace {\nint a;\n} namespace\n{ }\nnamespace b { } // namespace {\n"
    named = kernel_fatbins.with_named_namespaces(text)
    assert named == text.replace(
        "namespace {\nint", f"inline namespace {kernel_fatbins.NAMED} {{\nint"
    ).replace("namespace\n{", f"inline namespace {kernel_fatbins.NAMED}\n{{")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("__device__ int counter;", True),
        ("__constant__ float weights[9];", True),
        ("static __device__ unsigned seen = 0;", True),
        ("__device__ __align__(16) float row[4];", True),
        ("__managed__ int shared;", True),
        ("__device__ T& operator[](int i) {", False),
        ("__device__ constexpr int kRows = 4;", False),
        ("__device__ int rows(int x) { int y = x;", False),
    ],
)
def test_what_is_a_variable_of_the_gpus(text, is_one):
    assert kernel_fatbins.has_variable(text) is is_one


def test_kernels_that_an_edit_has_taken_out_are_told_from_errors_in_others():
    wanted = ("_Z4fillIfEvPT_l", "_Z4goneIfEvPT_l", "_Z5plainPf")
    lines = kernel_fatbins.instantiations(wanted).split("\n")
    assert lines[2] == "static void (*const jitload_kernel_0)(float*, long) = fill<float>;"
    assert lines[4] == ""
    said = 'fill.cu(3): error: oops\njitload_kernels(2): error: identifier "gone" is undefined\n'
    assert kernel_fatbins.without_unknown(wanted, said) == (wanted[0], wanted[2])


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("run([=] __device__(int i) { y[i] = i; });", True),
        ("run([=](int i) __host__ __device__ { y[i] = i; });", True),
        ("run([] HD { });", True),
        ("run([&](float (*f)(int)) DEVICE -> int { });", True),
        ("#include <thrust/sort.h>", True),
        ("run([&](auto x) -> int { return x[0] (1); });", False),
        ("auto f = [] { return 1; };", False),
        ("T operator[](int i) const { return x[i]; }", False),
        ("[[nodiscard]] int f() { }", False),
        ("// [=] __device__ (int i) { }", False),
    ],
)
def test_which_lambdas_may_be_for_the_gpu(text, may):
    assert sources.may_have_device_lambda(text) is may


@pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine")
def test_the_kernels_of_host_code_are_named_as_its_image_names_them(tmp_path):
    source = tmp_path / "some.cu"
    source.write_text(
        'namespace n { extern "C" __global__ void plain(float* x) { x[0] = 1; } }\n'
        "static __global__ void internal(float* x) { x[0] = 2; }\n"
        "template <class T> __global__ void some(T* x) { x[0] = 3; }\n"
        "void run(float* x) { some<<<1, 1>>>(x); internal<<<1, 1>>>(x); }\n"
    )
    nvcc = str(machine.cuda_home() / "bin/nvcc")
    command = [*nvcc_steps.COMMAND, nvcc, "-arch=sm_90", "-c", source, "-o", tmp_path / "some.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    kernels = kernel_fatbins.kernels_of(tmp_path / "some.o")
    assert sorted(kernels) == ["_Z4someIfEvPT_", "_Z8internalPf", "plain"]
    assert kernel_fatbins.compiled_in((tmp_path / "some.o").read_bytes(), kernels) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine")
def test_nvccs_steps_side_by_side_make_what_nvcc_makes(tmp_path):
    source, broken = tmp_path / "some.cu", tmp_path / "broken.cu"
    source.write_text(
        "namespace { __global__ void inner(float* x) { x[0] = 1; } }\n"
        "__global__ void outer(float* x) { x[0] = 2; }\n"
        "void run(float* x) { inner<<<1, 1>>>(x); outer<<<1, 1>>>(x); }\n"
    )
    broken.write_text("__global__ void outer(float* x) { oops; }\n")
    nvcc = str(machine.cuda_home() / "bin/nvcc")

    def symbols(command, name):
        asked = [*command, "-MD", "-MF", f"{name}.d", "-arch=sm_90", "-c", source, "-o", name]
        subprocess.run(asked, cwd=tmp_path, check=True)
        listed = subprocess.run(["nm", "-P", tmp_path / name], capture_output=True, text=True)
        words = (line.split() for line in listed.stdout.splitlines())
        return {(word[1], word[0]) for word in words if "GLOBAL__N_" not in word[0]}

    by_steps = [*nvcc_steps.COMMAND, nvcc]
    assert symbols(by_steps, "steps.o") == symbols([nvcc], "nvcc.o")
    assert source in sources.read_depfile(tmp_path / "steps.o.d")
    failed = subprocess.run(
        [*by_steps, "-arch=sm_90", "-c", broken, "-o", "broken.o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert failed.returncode != 0
    assert failed.stdout.count('identifier "oops" is undefined') == 1
    assert not list(tmp_path.glob("nvcc_*"))


ALONE = """
#include <cuda_fp16.h>
#define N 4
constexpr float kHalf = 0.5f;
__device__ float twice(float x) { return 2 * x; }
extern "C" __global__ void scale(const float* __restrict__ x, __half* y, int n) {
    y[N * threadIdx.x] = twice(kHalf * x[n]);
}
__global__ void __launch_bounds__(256, 2) fill(double* x) { *x = 1; }
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("double* x", "Row x"),
        ("__global__ void __l", "template <class T> __global__ void __l"),
        ("#define N 4", "#ifdef A\n#define N 4\n#endif"),
        ("#define N 4", "#define fill other"),
        ("#include <cuda_fp16.h>", '#include "types.h"'),
        ("__device__ float", "namespace n {\n__device__ float"),
        ("constexpr float", 'extern "C" int host() { return 1; }\nconstexpr float'),
    ],
)
def test_of_kernels_that_python_alone_launches_the_host_sees_the_heads(old, new, tmp_path):
    source = tmp_path / "alone.cu"
    (tmp_path / "types.h").write_text("")
    source.write_text(ALONE.replace(old, new, 1) + "}" * new.startswith("namespace"))
    code = Inputs.read(recipe_of([source], target="cuda"), Cache.here())
    heads = kernel_fatbins.heads(code)
    if new:
        assert heads is None
    else:
        assert heads.split("\n") == [
            "#include <cuda_fp16.h>",
            'extern "C" __global__ void scale(const float* __restrict__ x, __half* y, int n) {}',
            "__global__ void __launch_bounds__(256, 2) fill(double* x) {}",
            "",
        ]
