"""Every op compiles for the GPU too, by the loader's own build, where nvcc is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import reference
from toolchain import machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine"),
]
ARCHITECTURES = "7.5;8.0;9.0"  # in one build, as for a machine with several GPUs


def build(name: str, cache: Path) -> subprocess.CompletedProcess:
    settings = {"JITLOAD_CACHE": str(cache), "TORCH_CUDA_ARCH_LIST": ARCHITECTURES}
    return subprocess.run(
        [sys.executable, "-m", "jitload", "build", name, "--target", "cuda"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", reference.OPS)
def test_compiles_for_the_gpu(name: str, tmp_path: Path):
    run = build(name, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.rglob(f"{name}*.so"))


def test_half_types_have_their_operators_where_torch_does_not_forbid_them(tmp_path: Path):
    source = tmp_path / "half.cu"
    source.write_text(
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
        "__global__ void scale(const __half* x, __half* y, __nv_bfloat16* z) {\n"
        "    y[0] = x[0] * x[1] + __half(1.0f);\n    z[0] = float(z[1]) * 2;\n}\n"
    )
    program = "import jitload, sys; jitload.ensure(sys.argv[1], target='cuda')"
    settings = {"JITLOAD_CACHE": str(tmp_path / "cache"), "TORCH_CUDA_ARCH_LIST": "9.0"}
    run = subprocess.run(
        [sys.executable, "-c", program, source],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
