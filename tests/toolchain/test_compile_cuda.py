"""Every op compiles for the GPU too, by the loader's own build, where nvcc is found."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def builds(request, cache: Path) -> Iterator[dict[str, Future]]:
    """A build of each op that is to be tested, as many at a time as there are cores."""
    tests = [item for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = [test.callspec.params["name"] for test in tests]
        yield {name: pool.submit(build, name, cache) for name in names}


@pytest.mark.parametrize("name", reference.OPS)
def test_compiles_for_the_gpu(name: str, builds: dict[str, Future], cache: Path):
    run = builds[name].result()
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(cache.rglob(f"{name}*.so"))
