"""libcu++'s atomics, barriers and pipelines: threads of a block that wait for each other."""

import re
from pathlib import Path

import pytest
import torch

import jitload

SOURCE = Path(__file__).parent / "kernels" / "libcu.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
INPUT, SIZE = 4096, 8192


@pytest.fixture(scope="module", params=TARGETS)
def run(request):
    library = jitload.load(SOURCE, name="test_libcu", target=request.param)

    def run(name: str, blocks: int, threads: int) -> torch.Tensor:
        y = torch.zeros(SIZE, dtype=torch.int32)
        y[INPUT:] = torch.arange(SIZE - INPUT)
        y = y.to(request.param)
        getattr(library, f"run_{name}")(y, blocks, threads)
        return y.cpu()

    return run


@pytest.mark.parametrize("threads", [1, 33, 256])
def test_threads_arrive_and_wait_later(run, threads):
    t = torch.arange(threads)
    assert torch.equal(run("split", 1, threads)[:threads], 15 * ((t + 1) % threads) + 15)


def test_a_thread_that_drops_out_is_not_waited_for(run):
    assert run("dropped", 1, 64)[:64].tolist() == list(range(64, 0, -1))


def test_phases_are_told_by_their_parity(run):
    y = run("parity", 1, 96)
    assert y[:32].eq(0).all()
    assert y[32:96].eq(1500).all()


def test_a_function_runs_when_a_phase_ends(run):
    assert run("completion", 1, 40)[:40].eq(135).all()


@pytest.mark.parametrize(
    ("name", "threads", "reverses"),
    [
        ("own_pipeline", 64, False),
        ("unified_pipeline", 64, True),
        ("pipeline_of_roles", 128, True),
        ("pipeline_of_counts", 96, True),
    ],
)
def test_pipelines(run, name, threads, reverses):
    rows = torch.arange(512).view(8, 64) + 1
    assert torch.equal(run(name, 1, threads)[:512].view(8, 64), rows.flip(1) if reverses else rows)


@pytest.mark.parametrize("threads", [1, 32, 100])
def test_a_copy_arrives_at_a_barrier(run, threads):
    assert torch.equal(run("copied", 1, threads)[:100], torch.arange(100, 0, -1))


def test_who_spins_lets_others_go_first(run):
    assert run("spinning", 1, 128)[:2].tolist() == [127, 127]


def test_a_lock_of_many_blocks(run):
    assert run("locked", 20, 64)[0] == 20 * 64


def test_a_block_waits_for_the_one_before_it(run):
    assert run("chained", 16, 32)[1:17].tolist() == [2**n - 1 for n in range(1, 17)]


@pytest.mark.parametrize("name", ["operations", "builtins"])
def test_operations(run, name):
    y = run(name, 1, 100)
    xor = (34 % 2) | (33 % 2) << 1 | (33 % 2) << 2  # 34 threads flip bit 0, 33 each of the others
    assert y[:6].tolist() == [4950, 99, -99, 2**20 - 1, xor, -100]
    assert y[6:7].view(torch.float32).item() == 50
    assert y[7] == 100
    assert name == "operations" or y[8:11].tolist() == [7, 0, 16]


def test_semaphores_and_latches(run):
    assert run("counted", 1, 50)[:51].eq(50).all()


@pytest.fixture(scope="module")
def simulated():
    library = jitload.load(SOURCE, name="test_libcu", target="cpu")
    y = torch.zeros(SIZE, dtype=torch.int32)
    return lambda name, *launch: getattr(library, f"run_{name}")(y.zero_(), *launch) or y


def line_of(mark: str) -> str:
    lines = SOURCE.read_text().splitlines()
    return f"libcu.cu:{next(n for n, line in enumerate(lines, 1) if mark in line)}"


def test_a_barrier_at_which_too_few_arrive(simulated):
    with pytest.raises(RuntimeError, match="64 of 64 threads wait for others that never") as caught:
        simulated("deadlocked", 1, 64)
    place = f"{line_of('// WAITS')}: cuda::barrier::arrive_and_wait"
    assert re.search(
        rf"{re.escape(place)} \(mbarrier at 0x\w+, phase 0: 1 of 65 arrivals are missing\): 64 thr",
        str(caught.value),
    )


def test_a_barrier_at_which_too_many_arrive(simulated):
    with pytest.raises(RuntimeError, match="arrive of 2 at a barrier that awaits 1") as caught:
        simulated("overfull", 1, 32)
    assert line_of("// ARRIVES") in str(caught.value)
