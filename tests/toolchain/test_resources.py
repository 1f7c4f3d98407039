"""What kernel.resources() tells: read from ptxas, and what follows for the occupancy."""

import pytest
from jit_cases import answer, load, write

import jitload
from toolchain.machine import cuda_home
from toolchain.resources import Resources, Use, plain_names, uses

LOG = """[2/3] nvcc ...
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3oneIfEvPT_' for 'sm_90'
ptxas info    : Function properties for _Z3oneIfEvPT_
    8 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 128 registers, used 0 barriers, 8 bytes cumulative stack size
ptxas info    : Compile time = 1.238 ms
ptxas info    : Compiling entry function '_Z3twoPf' for 'sm_90'
ptxas info    : Function properties for _Z3twoPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]
"""


def test_log_is_read():
    one, two = uses(LOG)
    assert (one.registers, one.spilled, one.shared) == (128, 64, 0)
    assert (two.registers, two.spilled, two.shared) == (12, 0, 256)
    assert {one.architecture, two.architecture} == {"sm_90"}
    table = str(Resources([one, two], threads=256))
    assert table.splitlines()[0].endswith("occupancy, 256 threads a block")
    assert "<td>128</td><td>64</td>" in Resources([one], 256)._repr_html_()


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "percent"),
    [
        (32, 256, 0, 100),
        (33, 256, 0, 75),  # 40 a thread, in portions of a warp: 6 blocks
        (128, 512, 0, 25),  # one block
        (255, 256, 0, 12.5),
        (32, 32, 0, 50),  # no more than 32 blocks
        (32, 1024, 100 << 10, 100),  # two blocks of 101 KiB in 228
        (32, 1024, 150 << 10, 50),
        (16, 96, 0, 98.4375),  # 21 blocks of 3 warps
    ],
)
def test_occupancy(registers, threads, shared, percent):
    use = Use("k", "sm_90", registers, 0, 0)
    assert 100 * use.occupancy(threads, shared) == percent


def test_unknown_architecture_has_no_occupancy():
    assert Use("k", "sm_999", 32, 0, 0).occupancy(256) is None


@pytest.mark.usefixtures("in_scratch")
def test_simulator_has_no_registers():
    resources = load(answer(1)).resources()
    assert resources == []
    assert str(resources).startswith("answer is built for cpu: it has no registers to count.")
    assert "answer is built for cpu" in resources._repr_html_()


@pytest.mark.skipif(cuda_home() is None, reason="no nvcc")
@pytest.mark.usefixtures("in_scratch")
def test_nvcc_tells_of_every_kernel():
    path = write(
        "two.cu",
        """
        template <class T>
        __global__ void one(T* x) { x[threadIdx.x] = 1; }
        template __global__ void one<float>(float*);
        template __global__ void one<double>(double*);
        __global__ void two(float* x) {
            __shared__ float s[64];
            s[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = s[63 - threadIdx.x];
        }
        extern "C" void launch(float* x) { two<<<1, 64>>>(x); }
        """,
    )
    build = jitload.ensure(path, target="cuda")
    found = uses(build.log())
    assert {use.kernel for use in found} == {"one<float>", "one<double>", "two"}
    assert {use.shared for use in found if use.kernel == "two"} == {256}
    assert all(0 < use.registers < 64 and use.spilled == 0 for use in found)


def test_a_symbol_is_named_without_its_types():
    names = {
        "_ZN5torch8autograd4NodeD2Ev": "torch::autograd::Node::~Node",
        "torch_list_size": "torch_list_size",
    }
    assert plain_names([*names]) == names
