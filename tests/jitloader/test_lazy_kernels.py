"""A build for the GPU compiles the kernels that are launched, one by one."""

import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
import torch
from jit_cases import FORKS, compilers_in, in_process, killed_after, output_of, wait_for

import jitload
from jitloader import background, opening
from jitloader.arguments import recipe_of
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import kernel_fatbins, machine
from toolchain.errors import CompileError

pytestmark = pytest.mark.skipif(
    machine.cuda_home() is None or not kernel_fatbins.SUPPORTED, reason="nvcc is not found here"
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
FLOAT, DOUBLE = (
    f"_ZN{len(kernel_fatbins.NAMED)}{kernel_fatbins.NAMED}4fillI{it}EEvPT_l" for it in "fd"
)

# A session without a GPU: the runtime that it launches by is tests/helpers/fake_cudart.cpp.
BEGIN = """
import ctypes, json, os, pathlib, sys, torch
from jitloader import background, building, lazy_launchers, opening
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
    in_parts = lazy_launchers._open.get(kernel.build.name)
    compiled = in_parts and len(in_parts.parts)
    told.append([runtime.fake_launched()[before:].decode().split(), compiled])

"""
SESSION = """
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
# In an empty cache: nothing was ever called.
FIRST = """
kernel = load()
call(kernel, torch.float)
call(kernel, torch.double)
call(kernel, torch.double)
background.wait(300)
told.append(bool(building.cached(Inputs.read(recipe, Cache.here()))))
edit("oops")
try:
    load()
except jitload.CompileError as error:
    told.append([str(error.path), error.line])
print(json.dumps(told))
"""
# As many kernels as are not compiled whole at first.
MORE = "".join(f"template <class T>\n__global__ void more{n}(T*) {{}}\n" for n in range(9))
# Each edit in a fork, which goes on with what is left for the background.
KILLED = f"""
building.build_of(Inputs.read(recipe, Cache.here()))

def in_fork(value):
    edit(value)
    call(load(), torch.float)
    background.wait(300)
{FORKS}
"""
AFTERWARDS = """
call(load(), torch.float, torch.double)
whole = background.wait(300)
print(json.dumps([*told[0], whole, bool(building.cached(Inputs.read(recipe, Cache.here())))]))
"""


@pytest.fixture
def files(own, monkeypatch, tmp_path) -> tuple[Path, Path]:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    source, binding = tmp_path / "filled.cu", tmp_path / "filled.cpp"
    source.write_text(SOURCE)
    binding.write_text(BINDING)
    return source, binding


@pytest.fixture(scope="module")
def runtime(tmp_path_factory) -> Path:
    """The stand-in for CUDA's."""
    if ON_GPU:
        pytest.skip("here the runtime is CUDA's")
    folder = tmp_path_factory.mktemp("runtime")
    fake, runtime = Path(__file__).parent.parent / "helpers/fake_cudart.cpp", folder / "cudart.so"
    major, _ = machine.nvcc_release(machine.compiler_versions("cuda", folder))
    command = [*machine.found_cxx(), "-shared", "-fPIC", "-o", runtime, fake]
    subprocess.run([*command, f"-Wl,-soname,libcudart.so.{major}"], check=True)
    return runtime


def begin(files: tuple[Path, Path], runtime: Path) -> str:
    """What each session begins with."""
    source, binding = map(str, files)
    return BEGIN.format(runtime=str(runtime), source=source, binding=binding, text=SOURCE)


def test_an_edit_compiles_the_kernels_that_are_launched(files, runtime):
    source, _ = files
    code = begin(files, runtime) + SESSION
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


@pytest.mark.slow
def test_the_first_build_compiles_the_kernels_that_are_launched(files, runtime):
    source, _ = files
    source.write_text(SOURCE.replace("VALUE", "1") + MORE)
    code = begin(files, runtime) + FIRST
    line = 1 + SOURCE[: SOURCE.index("T(VALUE)")].count("\n")
    calls = [[[FLOAT], 1], [[DOUBLE], 2], [[DOUBLE], 2]]
    assert json.loads(output_of(code)) == [*calls, True, [str(source), line]]


@pytest.mark.slow
def test_another_process_opens_the_kernels_that_one_has_compiled(files, runtime, own):
    files[0].write_text(SOURCE.replace("VALUE", "1") + MORE)
    code = begin(files, runtime) + "call(load(), torch.float)\nbackground.stop()\n"
    made = []
    for _ in range(2):
        output_of(code)
        made.append({path: path.stat().st_ino for path in own.glob("*/kernels.fatbin")})
    assert len(made[0]) == 2, "one with no kernel in it, and one with that which was launched"
    assert made[1] == made[0]


def test_a_mistake_in_what_no_types_are_listed_for_is_raised_by_the_first_load(files):
    source, binding = files
    one = SOURCE.replace("VALUE", "1").partition("template decltype")[0]
    source.write_text(one.replace("/ 3", "/ three"))
    with pytest.raises(CompileError, match="three"):
        opening.opened(Inputs.read(recipe_of((source, binding), target="cuda"), Cache.here()))


@pytest.mark.slow
def test_killed_at_random_moments_then_loaded_again(files, runtime, own):
    """The process and ninja, while it is nvcc that compiles; KILLS says how often."""
    drawn, source = random.Random(30), files[0]
    source.write_text(SOURCE.replace("VALUE", "0"))
    parent = in_process(begin(files, runtime) + KILLED, stdin=subprocess.PIPE)
    for value in range(1, 1 + int(os.environ.get("KILLS", "12"))):
        killed_after(drawn.uniform(0, 2.5), parent, str(value))
    parent.communicate()
    assert parent.returncode == 0
    wait_for(lambda: not compilers_in(own), "the last compilers to end", 300)
    assert f"T({value})" in source.read_text(), "the last one was killed later than at its edit"
    launched, parts, *whole = json.loads(output_of(begin(files, runtime) + AFTERWARDS))
    if parts is None:  # the last one had time for the whole, in which nvcc names the namespace
        nvccs = re.compile(r"\d+_GLOBAL__N__\w+(?=4fill)")
        launched = [
            nvccs.sub(f"{len(kernel_fatbins.NAMED)}{kernel_fatbins.NAMED}", it) for it in launched
        ]
    assert (launched, whole) == ([FLOAT, DOUBLE], [True, True])
    assert not list(own.glob("building/*"))


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
