"""Kernels that go wrong on the simulator: a clear error each time, and the process lives on."""

import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from jit_cases import output_of
from simulated import line_of, message_of

import jitload

SOURCE = Path(__file__).parent / "kernels" / "errors.cu"
INVALID_VALUE = "cudaErrorInvalidValue"


@pytest.fixture(scope="module")
def kernels():
    return jitload.load(str(SOURCE), name="test_errors", target="cpu")


@pytest.fixture(autouse=True)
def the_next_launch_works(kernels):
    yield
    y = torch.zeros(64, dtype=torch.int32)
    kernels.run_fill(y, 1, 1, 1, 64, 1, 1, 256)
    assert y.eq(1).all()


def buffer(n: int = 64) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 1, 1), (64, 64, 1), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((1, 1, 1), (0, 1, 1), 0),
        ((1, 1, 1), (1, 0, 1), 0),
        ((0, 1, 1), (32, 1, 1), 0),
        ((1, 1, 0), (32, 1, 1), 0),
        ((-1, 1, 1), (32, 1, 1), 0),
        ((1, 65536, 1), (32, 1, 1), 0),
        ((1, 1, 65536), (32, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), 48 * 1024 + 1),
    ],
)
def test_a_launch_that_cuda_refuses(kernels, grid, block, shared):
    message = message_of(kernels.run_fill, buffer(), *grid, *block, shared)
    assert INVALID_VALUE in message
    assert "fill_dynamic" in message
    assert line_of(SOURCE, "fill_dynamic<<<") in message


def test_a_call_that_cuda_refuses_does_not_tell_of_a_launch_before(kernels):
    message_of(kernels.run_fill, buffer(), 1, 1, 1, 32, 1, 1, 48 * 1024 + 1)
    message = message_of(kernels.run_attribute, 1 << 30)
    assert "invalid argument" in message
    assert "fill_dynamic" not in message


def test_the_largest_launches_work(kernels):
    y = buffer(1024)
    kernels.run_fill(y, 1, 1, 1, 16, 1, 64, 48 * 1024)
    assert y.eq(1).sum() == 16
    kernels.run_fill(y, 1, 65535, 1, 1, 1, 1, 4)
    kernels.run_fill(y, 1, 1, 1, 1024, 1, 1, 4096)
    assert y.eq(1).all()


def test_the_last_error_is_told_once(kernels):
    assert kernels.run_last_error(buffer(), 32) == 0
    assert kernels.run_last_error(buffer(2048), 2048) == 1_001_000


def test_an_error_that_the_launcher_ignores_is_raised(kernels):
    message = message_of(kernels.run_unasked, buffer())
    assert INVALID_VALUE in message
    assert "fill" in message


def test_shared_memory_beyond_what_the_device_has(kernels):
    kernels.run_attribute(227 * 1024)
    kernels.run_attribute(48 * 1024)
    for bytes in (227 * 1024 + 1, -1):
        with pytest.raises(RuntimeError, match="invalid argument"):
            kernels.run_attribute(bytes)


def test_a_deadlock_says_who_waits_where(kernels):
    message = message_of(kernels.run_deadlock, buffer())
    assert "kernel deadlock" in message
    assert line_of(SOURCE, "deadlock<<<3, 64>>>") in message
    assert "block (" in message
    assert "64 of 64 threads" in message
    source = SOURCE.read_text().splitlines()
    begin = next(n for n, line in enumerate(source, 1) if "void deadlock" in line)
    assert (
        f"errors.cu:{begin + 2}: __syncwarp (mask 0xffffffff): 32 threads (0-15, 32-47)" in message
    )
    assert f"errors.cu:{begin + 4}: __syncthreads: 32 threads (16-31, 48-63)" in message


def test_a_shuffle_that_one_lane_misses(kernels):
    message = message_of(kernels.run_missing_lane, buffer())
    assert f"{line_of(SOURCE, 'y[threadIdx.x] = __shfl_sync')}: __shfl_sync" in message
    assert "31 threads (0-8, 10-31)" in message
    assert "__syncthreads: 1 thread (9)" in message


def test_a_mask_that_leaves_out_its_caller(kernels):
    message = message_of(kernels.run_not_in_mask, buffer())
    assert line_of(SOURCE, "__ballot_sync(0xff, 1)") in message
    assert "0x000000ff" in message
    assert "lane 8" in message


def test_assertions(kernels):
    kernels.run_assertion(32)
    message = message_of(kernels.run_assertion, 20)
    assert line_of(SOURCE, "assert(threadIdx.x < limit)") in message
    assert "thread 20" in message
    assert "threadIdx.x < limit" in message


def test_trap(kernels):
    message = message_of(kernels.run_trap)
    assert line_of(SOURCE, "== 3) __trap()") in message
    assert "thread 3" in message


@pytest.mark.skipif(sys.platform != "linux", reason="faults are caught on Linux")
class TestFaults:
    def test_a_wild_address(self, kernels):
        message = message_of(kernels.run_wild, buffer(), 1 << 45)
        assert "kernel wild" in message
        assert "illegal memory access" in message

    def test_division_by_zero(self, kernels):
        y = buffer()
        kernels.run_divide(y, 2)
        assert y[0] == 3
        if os.uname().machine == "x86_64":
            assert "division by zero" in message_of(kernels.run_divide, y, 0)

    def test_stack_overflow(self, kernels):
        y = buffer()
        kernels.run_deep(y, 50)
        assert y[0] == sum(range(51))
        message = message_of(kernels.run_deep, y, 100_000)
        assert "kernel deep" in message
        assert "stack overflow" in message


def test_a_wrong_format_of_printf_is_told_with_the_build_and_ends_the_kernel_alone(kernels, capfd):
    number, half, *others = kernels.notes
    assert not others
    assert line_of(SOURCE, 'printf("%s') in number
    assert "int" in number
    assert line_of(SOURCE, "float x) { printf") in half
    assert "double" in half
    assert "illegal memory access" in message_of(kernels.run_number_as_text)
    kernels.run_prints(torch.ones(1))
    assert capfd.readouterr().out.count(" 2 3 0x") == 128


def test_an_exception_in_a_kernel(kernels):
    message = message_of(kernels.run_throw)
    assert "kernel throwing" in message
    assert "not on a GPU" in message


def test_a_launch_from_a_kernel(kernels):
    message = message_of(kernels.run_nested, buffer())
    assert line_of(SOURCE, "fill<<<1, 1>>>(y)") in message
    assert "does not launch kernels from kernels" in message


def test_memory_streams_and_events(kernels):
    y = buffer(1000)
    kernels.run_memory(y, 1000)
    assert y.eq(0x01010101).all()


def test_the_device(kernels):
    y = buffer(9)
    with pytest.raises(RuntimeError, match="invalid device"):
        kernels.run_device(y)
    warp, block, shared, processors, again, count, blocks, fewer = y[:8].tolist()
    assert (warp, block, shared, count) == (32, 1024, 48 * 1024, 1)
    assert processors == again >= 1
    assert (blocks, fewer) == (8, 5)


def sums(kernels, seed: int) -> bool:
    x = torch.randint(
        -99, 99, (500,), dtype=torch.int32, generator=torch.Generator().manual_seed(seed)
    )
    y = buffer(200)
    kernels.run_sums(x, y, 500, 200)
    return bool(y.eq(x.sum()).all())


def test_several_host_threads_launch_at_once(kernels):
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda seed: sums(kernels, seed), range(40)))


def test_errors_belong_to_the_host_thread_that_launched(kernels):
    def launch(i: int) -> str | None:
        try:
            kernels.run_fill(buffer(), 1, 1, 1, 32 if i % 2 else 2000, 1, 1, 128)
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        messages = list(pool.map(launch, range(40)))
    assert all((message is None) == bool(i % 2) for i, message in enumerate(messages))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_launches_too(kernels):
    """As the workers of a PyTorch DataLoader do."""
    assert sums(kernels, 0)
    children = multiprocessing.get_context("fork").Pool(2)
    with children:
        assert children.starmap(sums_here, [(seed,) for seed in range(6)]) == [True] * 6


def sums_here(seed: int) -> bool:
    return sums(jitload.load(str(SOURCE), name="test_errors", target="cpu"), seed)


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_workers(threads):
    code = f"""
        import jitload, torch
        kernels = jitload.load({str(SOURCE)!r}, name="test_errors", target="cpu")
        y = torch.zeros(9, dtype=torch.int32)
        try:
            kernels.run_device(y)
        except RuntimeError:
            pass
        x, z = torch.ones(500, dtype=torch.int32), torch.zeros(2000, dtype=torch.int32)
        kernels.run_sums(x, z, 500, 2000)
        print(y[3].item(), z.eq(500).all().item())
    """
    said = output_of(code, env=os.environ | {"SIMULATOR_THREADS": threads})
    assert said.split() == [threads, "True"]
