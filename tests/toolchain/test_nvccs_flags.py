"""nvcc's flags on the CPU: used in a C++ compiler's words, or dropped and named."""

import pytest
from jit_cases import load, write

from toolchain.command_line import checked_flags
from toolchain.nvccs_flags import for_cpp


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-O3", "-std=c++17", "-march=native"], ["-O3", "-std=c++17", "-march=native"]),
        (["-Xcompiler", "-fPIC"], ["-fPIC"]),
        (["-Xcompiler=-fPIC,-Wall", r"--compiler-options=-DA=1\,2"], ["-fPIC", "-Wall", "-DA=1,2"]),
        (["-std", "c++17", "--std=c++17"], ["-std=c++17", "-std=c++17"]),
        (["--define-macro", "A=1", "--include-path=x"], ["-DA=1", "-Ix"]),
        (["-fmad=false", "--fmad", "true"], ["-ffp-contract=off"]),
        (["-U__CUDA_NO_HALF_OPERATORS__"], ["-U__CUDA_NO_HALF_OPERATORS__"]),
        (["-D", "-rdc", "-I", "-lineinfo"], ["-D", "-rdc", "-I", "-lineinfo"]),  # values
    ],
)
def test_what_a_cpp_compiler_has_too_is_said_in_its_words(flags, expected):
    assert for_cpp(checked_flags(flags, "cpu")) == (expected, [], [])


@pytest.mark.parametrize(
    "flags",
    [
        ["--use_fast_math"],
        ["-use_fast_math"],
        ["-Xptxas", "-v"],
        ["-Xptxas=-v"],
        ["--ptxas-options=-v,-dlcm=ca"],
        ["-gencode", "arch=compute_80,code=sm_80"],
        ["-gencode=arch=compute_90,code=[sm_90,compute_90]"],
        ["-arch=sm_90"],
        ["-arch", "sm_90"],
        ["--gpu-architecture", "native"],
        ["--expt-relaxed-constexpr"],
        ["--expt-extended-lambda"],
        ["-lineinfo"],
        ["-G"],
        ["-maxrregcount", "32"],
        ["--maxrregcount=32"],
        ["-rdc=true"],
        ["--threads", "4"],
        ["-lcublas"],
        ["-l", "cudart"],
        ["-x", "cu"],
    ],
)
def test_what_is_for_gpus_alone_is_dropped_and_named(flags):
    flags_of, links, dropped = for_cpp(checked_flags([*flags, "-DLAST"], "cpu"))
    assert (flags_of, links) == (["-DLAST"], [])
    assert dropped in ([" ".join(flags)], ["".join(flags)])


def test_a_standard_too_old_for_pytorchs_headers_is_dropped_and_other_libraries_are_linked():
    translated = for_cpp(["-std=c++14", "-lm", "-L/x", "-l", "z"], "c++17")
    assert translated.flags == []
    assert translated.links == ["-lm", "-L/x", "-lz"]
    assert translated.dropped == ["-std=c++14 (PyTorch's headers need c++17)"]
    assert for_cpp(["-std=c++20"], "c++17").flags == ["-std=c++20"]
    assert for_cpp(["-std=c++14"]).flags == ["-std=c++14"]


def test_a_kernel_takes_nvccs_flags_and_names_those_that_it_does_without(in_scratch):
    source = write("nvccs.cu", 'extern "C" int answer() { return FIRST + SECOND; }')
    flags = [
        "-O3",
        "-arch=sm_90",
        "--use_fast_math",
        "-Xptxas",
        "-v",
        "-DFIRST=1",
        "-Xcompiler",
        "-DSECOND=2",
    ]
    kernel = load(source, flags=flags)
    assert kernel.answer() == 3
    assert kernel.notes == [
        "the CPU's compiler does without -arch=sm_90, --use_fast_math, -Xptxas -v"
    ]
