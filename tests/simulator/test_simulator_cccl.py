"""Thrust and libcu++ from NVIDIA's own headers, and what is said where they are not."""

from pathlib import Path

import pytest
import torch

import jitload
import lab
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import machine
from toolchain.code import Recipe

SOURCE = Path(__file__).parent / "kernels" / "thrust.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
needs_cccl = pytest.mark.skipif(machine.cccl() is None, reason="needs pip's nvidia-cuda-cccl")


@pytest.fixture(scope="module", params=TARGETS)
def run(request):
    library = jitload.load(SOURCE, name="test_thrust", target=request.param)

    def run(name: str, n: int) -> torch.Tensor:
        y = torch.zeros(n, dtype=torch.int32, device=request.param)
        getattr(library, f"run_{name}")(y, n)
        return y.cpu()

    return run


@needs_cccl
def test_a_vector_of_the_device(run):
    assert torch.equal(run("vector", 1000), torch.arange(998, -1001, -2).cumsum(0).int())


@needs_cccl
def test_errors_of_thrust(run):
    assert run("error", 1) == 1


@needs_cccl
def test_within_a_kernel(run):
    t = torch.arange(96)
    assert torch.equal(run("in_a_kernel", 96), (95 + t % 3 + 1 - 1000 + 1).int())


def load(folder: Path, code: str) -> jitload.Kernel:
    (folder / "foreign.cu").write_text(f"\n{code}\n")
    return jitload.load(folder / "foreign.cu", target="cpu")


MEMORY_OF_THRUST = """
#include <thrust/device_vector.h>
__global__ void twice(const float* from, float* to, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 2 * from[i];
}
extern "C" void run(const float* x, float* y, int n) {
    thrust::device_vector<float> scratch(x, x + n);
    float* data = thrust::raw_pointer_cast(scratch.data());
    twice<<<2, 64>>>(data, data, n);
    twice<<<2, 64>>>(data, y, n);
}"""


@needs_cccl
@pytest.mark.slow
def test_the_checker_knows_the_memory_of_a_vector(tmp_path):
    kernel = load(tmp_path, MEMORY_OF_THRUST)
    x, y = torch.rand(128), torch.empty(128)
    report = lab.check(kernel.run, x, y, 128)
    assert report.findings.empty, str(report)
    kernel.run(x, y, 128)
    assert torch.equal(y, 4 * x)


@pytest.mark.parametrize("header", ["thrust/device_vector.h", "cuda/std/array"])
def test_where_the_headers_are_missing_it_is_said_where_to_get_them(tmp_path, monkeypatch, header):
    monkeypatch.setattr(machine, "cccl", lambda: None)
    with pytest.raises(jitload.CompileError, match=r"foreign\.cu:2:\d+: error: ") as caught:
        load(tmp_path, f"#include <{header}>")
    assert header in caught.value.message
    assert "pip install nvidia-cuda-cccl" in caught.value.hint


def test_who_needs_none_of_nvidias_headers_gets_none(tmp_path, monkeypatch):
    def missing() -> None:
        raise AssertionError("they are not asked for")

    monkeypatch.setattr(machine, "cccl", missing)
    kernel = load(tmp_path, '#include <cuda/barrier>\nextern "C" int one() { return 1; }')
    assert kernel.one() == 1


def test_another_release_of_them_is_another_build(monkeypatch):
    recipe = Recipe("cccl", (SOURCE,), (), (), "cpu", debug=False)
    digests = set()
    for version in (3_000_000, 3_001_000):
        monkeypatch.setattr(machine, "cccl", lambda version=version: (Path("/cccl"), version))
        digests.add(Inputs.read(recipe, Cache.here()).digest)
    assert len(digests) == 2


def test_where_nvidias_headers_are_looked_for(tmp_path, monkeypatch):
    def install(folder: str, version: int) -> Path:
        place = tmp_path / folder / "include/cccl"
        (place / "cuda/std/__cccl").mkdir(parents=True)
        (place / "cuda/std/__cccl/version.h").write_text(f"#define CCCL_VERSION {version}\n")
        return place

    class Wheels:
        submodule_search_locations = (str(tmp_path / "nvidia"),)

    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: Wheels)
    monkeypatch.setattr(machine, "cuda_home", lambda: tmp_path / "toolkit")
    found = machine.cccl.__wrapped__
    assert found() is None
    install("nvidia/cu12", 2_008_002)  # too old
    assert found() is None
    toolkits = install("toolkit", 3_000_001)
    assert found() == (toolkits, 3_000_001)
    wheels = install("nvidia/cu13", 3_005_000)
    assert found() == (wheels, 3_005_000)
