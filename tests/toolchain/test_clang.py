"""Kernels for the CPU built with clang, where a release that is new enough is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolchain.machine import OLDEST_CLANG


def releases() -> dict[int, str]:
    """The installed releases of clang from OLDEST_CLANG on, and their commands."""
    found = {}
    for command in ("clang++", *(f"clang++-{n}" for n in range(OLDEST_CLANG, OLDEST_CLANG + 20))):
        if shutil.which(command):
            said = subprocess.run([command, "--version"], capture_output=True, text=True).stdout
            if version := re.search(r"clang version (\d+)", said):
                found[int(version[1])] = command
    return {release: found[release] for release in sorted(found) if release >= OLDEST_CLANG}


CLANGS = list(releases().values())
pytestmark = pytest.mark.skipif(
    not CLANGS or sys.platform != "linux",
    reason=f"needs clang {OLDEST_CLANG} or later (Debian: clang-{OLDEST_CLANG})",
)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cache(made_once) -> Path:
    """One for all processes that share the tests: clang compiles the runtime for a minute."""
    return made_once("cache of clang", lambda folder: None)


def run(cache: Path, compiler: str, *arguments: str) -> str:
    """What a fresh Python prints, with this compiler and these builds."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"CXX": compiler, "JITLOAD_CACHE": str(cache), "JITLOAD_TARGET": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.longest
def test_the_simulators_tests_pass(cache):
    """And those of a program's macros, which do not meet the simulator's headers."""
    files = [f"tests/simulator/{name}.py" for name in ("test_simulator", "test_simulator_macros")]
    said = run(cache, CLANGS[0], "-m", "pytest", "-v", *files)
    for file in files:
        assert len(re.findall(rf"{file}::.* PASSED", said)) >= 10


OP = """
import torch
import jitload, lab, reference
from kernels.reduce_sum import kernel, reduce_sum

for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    x = torch.randn(70, 300, dtype=dtype, requires_grad=True)
    y = reduce_sum(x)
    y.sum().backward()
    expected = reference.reduce_sum(x.detach().double())
    bound = 8 * torch.finfo(dtype).eps
    assert (y - expected).abs().max() < bound * expected.abs().max(), dtype
    assert (x.grad == 1).all(), dtype
assert "clang" in kernel.build.log()
try:
    lab.check(reduce_sum, x)
except jitload.MissingTool as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.longest
def test_an_op_is_right_and_the_checker_asks_for_another_compiler(cache):
    said = run(cache, CLANGS[-1], "-c", OP)
    assert "lab.check instruments kernels with g++, not clang: set CXX=g++" in said


@pytest.mark.slow
def test_doctor_tries_it(cache):
    assert "target cpu   builds: yes  runs: yes" in run(cache, CLANGS[0], "jitload.py", "doctor")
