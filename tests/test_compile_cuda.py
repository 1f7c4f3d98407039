"""Every op compiles for the GPU too, by the loader's own build, where nvcc is found."""

import os
import subprocess
import sys

import pytest

import reference
from toolchain import machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(machine.cuda_home() is None, reason="nvcc is not found on this machine"),
]


@pytest.mark.parametrize("architecture", ["7.5", "8.0", "9.0"])
@pytest.mark.parametrize("name", reference.OPS)
def test_compiles_for_the_gpu(name: str, architecture: str, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "jitload", "build", name, "--target", "cuda"],
        env=os.environ | {"JITLOAD_CACHE": str(tmp_path), "TORCH_CUDA_ARCH_LIST": architecture},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.rglob(f"{name}*.so"))
