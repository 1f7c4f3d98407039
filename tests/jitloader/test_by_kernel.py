"""After an edit a build for the GPU compiles the kernels that are launched, one by one."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
import torch
from jit_cases import output_of

import jitload
from jitloader import background
from toolchain import by_kernel, machine
from toolchain.errors import CompileError

pytestmark = pytest.mark.skipif(
    machine.cuda_home() is None or not by_kernel.SUPPORTED, reason="nvcc is not found here"
)
ON_GPU = torch.cuda.is_available()

SOURCE = """
#include <cstdint>

template <class T>
__device__ __noinline__ T third(T x) {
    return x / 3;
}

namespace {
template <class T>
__global__ void fill(T* x, int64_t n) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = third(T(VALUE));
}
}  // namespace

template <class T>
void filled(T* x, int64_t n) {
    fill<<<1, 32>>>(x, n);
}

template decltype(filled<float>) filled<float>;
template decltype(filled<double>) filled<double>;
"""
BINDING = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;
template <class T>
void filled(T* x, int64_t n);

void fill(Tensor x) {
    if (x.scalar_type() == torch::headeronly::ScalarType::Double) {
        filled(static_cast<double*>(x.mutable_data_ptr()), x.numel());
    } else {
        filled(static_cast<float*>(x.mutable_data_ptr()), x.numel());
    }
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("fill(Tensor(a!) x) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("fill", TORCH_BOX(&fill));
}
"""
FLOAT, DOUBLE = (f"_ZN{len(by_kernel.NAMED)}{by_kernel.NAMED}4fillI{it}EEvPT_l" for it in "fd")

# A session without a GPU: the runtime that it launches by is tests/helpers/fake_cudart.cpp.
SESSION = """
import ctypes, json, pathlib, torch
from jitloader import background, building, opening, parts
from jitloader.arguments import recipe_of
from jitloader.cache import Cache
from jitloader.inputs import Inputs
runtime = ctypes.CDLL({runtime!r}, mode=ctypes.RTLD_GLOBAL)
runtime.fake_launched.restype = ctypes.c_char_p
recipe = recipe_of(({source!r}, {binding!r}), None, "cuda", (), (), None)
jitload.listen(lambda event: None)
told = []

def edit(value):
    pathlib.Path({source!r}).write_text({text!r}.replace("VALUE", value))

def load():
    return opening.opened(Inputs.read(recipe, Cache.here()))

def call(kernel, *kinds):
    before = len(runtime.fake_launched())
    for kind in kinds:
        kernel.fill(torch.zeros(9, dtype=kind))
    compiled = len(parts._open[kernel.build.name].parts)
    told.append([runtime.fake_launched()[before:].decode().split(), compiled])

edit("1")
building.build_of(Inputs.read(recipe, Cache.here()))
edit("2")
call(load(), torch.float)
edit("3")
kernel = load()
call(kernel, torch.float, torch.float)
call(kernel, torch.double)
call(kernel, torch.double)
edit("4 + 0 * sizeof(char[sizeof(T) == 4 ? 1 : -1])")
try:
    load()
except jitload.CompileError as error:
    told.append([str(error.path), error.line])
edit("5")
call(load(), torch.float)
edit("6 + 0 * sizeof(char[sizeof(T) == 4 ? 1 : -1])")
kernel = load()
call(kernel, torch.float)
try:
    call(kernel, torch.double)
except jitload.CompileError as error:
    told.append([str(error.path), error.line])
background.stop()
print(json.dumps(told))
"""


@pytest.fixture
def files(own, monkeypatch, tmp_path) -> tuple[Path, Path]:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    source, binding = tmp_path / "filled.cu", tmp_path / "filled.cpp"
    source.write_text(SOURCE)
    binding.write_text(BINDING)
    return source, binding


@pytest.mark.skipif(ON_GPU, reason="here the runtime is CUDA's")
def test_an_edit_compiles_the_kernels_that_are_launched(files, tmp_path):
    source, binding = files
    fake, runtime = Path(__file__).parent.parent / "helpers/fake_cudart.cpp", tmp_path / "cudart.so"
    major, _ = machine.nvcc_release(machine.compiler_versions("cuda", tmp_path))
    command = [*machine.found_cxx(), "-shared", "-fPIC", "-o", runtime, fake]
    subprocess.run([*command, f"-Wl,-soname,libcudart.so.{major}"], check=True)
    code = SESSION.format(
        runtime=str(runtime), source=str(source), binding=str(binding), text=SOURCE
    )
    line = 1 + SOURCE[: SOURCE.index("T(VALUE)")].count("\n")
    assert json.loads(output_of(code)) == [
        [[FLOAT], 1],
        [[FLOAT, FLOAT], 0],
        [[DOUBLE], 1],
        [[DOUBLE], 1],
        [str(source), line],
        [[FLOAT], 0],
        [[FLOAT], 0],
        [str(source), line],
    ]


@pytest.mark.skipif(not ON_GPU, reason="no GPU here")
def test_after_random_edits_every_kernel_is_that_of_its_files(files, monkeypatch):
    source, binding = files
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    drawn = random.Random(28)
    try:
        for value in range(int(os.environ.get("EDITS", "8"))):
            broken = value and drawn.random() < 0.2
            source.write_text(SOURCE.replace("VALUE", "oops" if broken else str(value)))
            if broken:
                with pytest.raises(CompileError):
                    jitload.load(source, binding).fill(torch.zeros(9, device="cuda"))
                continue
            kernel = jitload.load(source, binding)
            assert bool(kernel.build.launchers) is (value > 0)
            for kind in drawn.sample([torch.float, torch.double], drawn.randrange(3)):
                x = torch.zeros(100, dtype=kind, device="cuda")
                kernel.fill(x)
                # On a GPU PyTorch would multiply by the reciprocal.
                third = torch.tensor(value, dtype=kind) / 3
                assert torch.equal(x.cpu(), third.expand(100))
    finally:
        background.stop()
