"""Every op compiles for the GPU too, by the loader's own build, where nvcc is found."""

import os
import re
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
ARCHITECTURES = "7.5;9.0"  # in one build, as for a machine with several GPUs


def build(name: str, *caches: Path) -> subprocess.CompletedProcess:
    folders = os.pathsep.join(map(str, caches))
    settings = {"JITLOAD_CACHE": folders, "TORCH_CUDA_ARCH_LIST": ARCHITECTURES}
    return subprocess.run(
        [sys.executable, "-m", "jitload", "build", name, "--target", "cuda"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )


@pytest.mark.longest
@pytest.mark.parametrize("name", reference.OPS)
def test_compiles_for_the_gpu(name: str, tmp_path: Path, cache: Path):
    run = build(name, tmp_path, cache)
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


PRODUCT = """
#include "wgmma.cuh"
#include "%s"
__global__ void product(float* y) {
    float sums[4] = {};
    uint32_t a[4] = {};
    mma<%s>(sums, a, a);
    y[threadIdx.x] = sums[0];
#if HAS_WGMMA
    float more[8] = {};
    wgmma<%s>(more, 0, 0, true);
    y[threadIdx.x] += more[0];
#endif
}
"""


@pytest.mark.parametrize(
    ("named", "of", "header"),
    [
        ("BFloat16", "bf16", "types.h"),
        ("nv_bfloat16", "bf16", "cuda_bf16.h"),
        ("Half", "f16", "types.h"),
        ("__half", "f16", "cuda_fp16.h"),
    ],
)
def test_a_product_is_of_the_type_that_is_named(named: str, of: str, header: str, tmp_path: Path):
    run = product_of(named, header, tmp_path)
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "product.ptx").read_text()
    products = [line for line in text.splitlines() if "mma" in line and ".aligned." in line]
    assert len(products) == 2
    assert all(f".{of}.{of}" in line for line in products)


def test_a_product_of_another_type_does_not_compile(tmp_path: Path):
    run = product_of("short", "types.h", tmp_path)
    assert "T is no float of 16 bits: wanted is Half or BFloat16" in run.stderr


def product_of(named: str, header: str, folder: Path) -> subprocess.CompletedProcess:
    source = folder / "product.cu"
    source.write_text(PRODUCT % (header, named, named))
    nvcc = Path(machine.cuda_home()) / "bin" / "nvcc"
    include = Path(__file__).resolve().parents[2] / "kernels" / "include"
    options = ["-std=c++17", "-DPLAYGROUND_CUDA=1", f"-I{include}", "-arch=compute_90a"]
    return subprocess.run(
        [nvcc, *options, "--ptx", "-o", folder / "product.ptx", source],
        capture_output=True,
        text=True,
    )


TENSOR_MEMORY = """
__device__ __forceinline__ void fence() {
#if IS_GUARDED && !(__CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000 && __CUDA_ARCH__ < 1200)
    return;
#else
    asm volatile("tcgen05.fence::before_thread_sync;");
#endif
}
__global__ void k(float* x) { fence(); x[0] = 1; }
"""


def test_blackwells_architectures_compile_and_one_that_lacks_an_instruction_is_refused(
    tmp_path: Path, monkeypatch
):
    import jitload

    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "fence.cu"
    path.write_text(TENSOR_MEMORY)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a 10.0f;10.3a,12.0a 12.1a")
    jitload.ensure(path, target="cuda", flags=["-DIS_GUARDED=1"])
    (log,) = (tmp_path / "cache").glob("fence_*/log")
    found = set(re.findall(r"for '(sm_\w+)'", log.read_text()))
    assert found == {"sm_100a", "sm_100f", "sm_103a", "sm_120a", "sm_121a"}
    with pytest.raises(jitload.CompileError) as caught:
        jitload.ensure(path, target="cuda", flags=["-DIS_GUARDED=0"])
    assert "'tcgen05.fence' not supported on .target 'sm_12" in str(caught.value)
    assert (caught.value.path, caught.value.line) == (path, 6)
