"""Libraries that the simulator does not have are refused in one line, where they are asked for."""

import pytest

import jitload
from simulator.absent import absent


@pytest.mark.parametrize(
    ("message", "library"),
    [
        ("cufft.h: No such file or directory", "cuFFT"),
        ("'cufftXt.h' file not found", "cuFFT"),
        ("cusparse_v2.h: No such file or directory", "cuSPARSE"),
        ("cusolverDn.h: No such file or directory", "cuSOLVER"),
        ("cutlass/gemm/device/gemm.h: No such file or directory", "CUTLASS"),
        (
            "cublas.h: No such file or directory",
            "API of cuBLAS from before CUDA 4, cublas.h, but the one of cublas_v2.h",
        ),
        ("my_cufft.h: No such file or directory", None),
        ("expected ';' before 'cufft'", None),
    ],
)
def test_which_library_a_compiler_misses(message, library):
    assert absent(message) == library


@pytest.mark.parametrize(
    ("header", "library"), [("<cudnn_frontend.h>", "cuDNN"), ('"cusparse.h"', "cuSPARSE")]
)
def test_a_library_is_refused_where_its_header_is_included(in_scratch, tmp_path, header, library):
    source = tmp_path / "asks.cu"
    source.write_text(f"#define WITH 1\n#if WITH\n#include {header}\n#endif\n")
    with pytest.raises(jitload.CompileError, match=f"the simulator has no {library}") as error:
        jitload.load(source, target="cpu")
    assert (error.value.path, error.value.line, error.value.log) == (source, 3, None)


def test_a_header_that_is_not_reached_is_not_asked_for(in_scratch, tmp_path):
    source = tmp_path / "asks.cu"
    source.write_text(
        '#ifdef WITH_CUDNN\n#include <cudnn.h>\n#endif\nextern "C" int answer() { return 42; }\n'
    )
    assert jitload.load(source, target="cpu").answer() == 42
