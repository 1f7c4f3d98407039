"""The simulator on aarch64, where a cross compiler and an emulator for it are installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import simulator
from simulator.rewrite import rewrite

SOURCES = Path(__file__).parent / "kernels"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"needs {COMPILER} and {EMULATOR} (Debian: g++-aarch64-linux-gnu, qemu-user)",
)
def test_on_aarch64(tmp_path):
    sources = [simulator.RUNTIME, SOURCES / "main_aarch64.cpp"]
    for name in ("threads.cu", "errors.cu"):
        sources.append(tmp_path / f"{name}.cpp")
        sources[-1].write_text(rewrite((SOURCES / name).read_text(), name))
    flags = [flag for flag in simulator.compile_flags(clang=False) if not flag.startswith("-m")]
    flags += ["-std=c++17", "-static", "-pthread", f"-I{simulator.INCLUDE}"]
    program = tmp_path / "program"
    command = [COMPILER, *flags, "-include", "cuda_runtime.h", *sources, "-o", program]
    subprocess.run(command, check=True, timeout=100)
    result = subprocess.run(
        [EMULATOR, program],
        env=os.environ | {"SIMULATOR_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    launch_failure, illegal_address = 719, 700
    codes = [launch_failure, illegal_address, launch_failure, launch_failure]
    assert result.stdout.split() == [str(code) for code in codes], result.stderr
