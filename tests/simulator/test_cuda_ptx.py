"""cuda::ptx from NVIDIA's own headers, and cuda::barrier's helpers for copies in bulk."""

import re

import pytest
import torch
from simulated import TARGETS, Kernels, for_hopper, on_simulator_alone

from simulator.rewrite import rewrite
from toolchain import cuda_ptx, machine

pytestmark = pytest.mark.skipif(machine.cccl() is None, reason="needs pip's nvidia-cuda-cccl")
MASK = 0xFFFFFFFF


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request):
    with for_hopper(request.param):
        yield Kernels("cuda_ptx", request.param)


@pytest.mark.slow
def test_one_instruction_each(kernels):
    a, b, lane = 0x01234567, 0x89ABCDEF - (1 << 32), 5
    y = kernels.zeros(64)
    kernels.values(y, kernels.tensor([a, b]))
    b &= MASK
    expected = [
        3 * (lane + 1) + 1,
        lane - 1,
        a.bit_length() - 1,
        31 - (a.bit_length() - 1),
        0xFF0,
        0xFF0,
        0x89CD0145,  # bytes 7, 5, 3, 1 of b:a
        0xEF012345,  # forward: bytes 4, 3, 2, 1
        0xAB896745,  # backward: bytes 6, 7, 0, 1
        0x45454545,
        0x01234545,
        0x45454567,
        0x01230123,
        a << 4 & MASK,
        (b - (1 << 32)) >> 4 & MASK,
        0,
        b,
        b,
        a,
        a + 1,
        a + 2,
        lane,
        32,
        0,
        1,
        1,
        (1 << lane) - 1,
        0,
    ]
    got = [value & MASK for value in y.tolist()]
    assert [f"{value:08x}" for value in got[: len(expected)]] == [f"{v:08x}" for v in expected]


def test_copies_in_bulk(kernels):
    x = torch.arange(128, dtype=torch.int32) * 7
    y, halves = kernels.zeros(257), kernels.zeros(8, dtype=torch.float16)
    y[128:256] = 500
    kernels.bulk(y, x.to(y.device), halves)
    y = y.cpu()
    assert torch.equal(y[:128], 4 * x)
    assert torch.equal(y[128:256], (2 * x).clamp(max=500))
    assert torch.equal(halves.cpu(), torch.arange(8).half() / 4)


def test_stores_to_the_next_block(kernels):
    y = kernels.zeros(4, 8)
    kernels.ring(y)
    before = [3, 0, 1, 2]
    expected = [[b, 10, 20, 30, 100 + 3 * b, 0, (r + 1) % 4, 0] for r, b in enumerate(before)]
    assert y.tolist() == expected


@pytest.mark.parametrize("by_ptx", [0, 1])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_tensors(kernels, rank, by_ptx):
    extents, boxes, at = [8, 4, 3, 2, 2][:rank], [4, 2, 2, 2, 1][:rank], [4, 2, 1, 0, 1][:rank]
    shape = extents[::-1]
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).view(shape)
    inside = tuple(slice(a, a + b) for a, b in zip(at[::-1], boxes[::-1], strict=True))
    expected = torch.zeros_like(x)
    expected[inside] = (x[inside] + 1000) * (2 if by_ptx else 1)
    y = torch.zeros_like(x).to(kernels.device)
    kernels.box(y, x.to(kernels.device), rank, by_ptx)
    assert torch.equal(y.cpu(), expected)


def test_bytes_in_a_row_complete_at_a_barrier(kernels):
    x = torch.randint(1000, (2, 64), dtype=torch.int32)
    y = kernels.zeros(3, 64)
    kernels.rows(y, x.to(y.device))
    expected = torch.stack([*x.flip(1), torch.arange(64, dtype=torch.int32)])
    assert torch.equal(y.cpu(), expected)


def test_a_barrier_that_waits_for_bytes_says_how_many(kernels):
    on_simulator_alone(kernels)
    with pytest.raises(RuntimeError, match="32 of 32 threads wait") as caught:
        kernels.too_few(kernels.zeros(64))
    assert "cuda::barrier::arrive_and_wait" in str(caught.value)
    assert "128" in str(caught.value)


def test_a_vector_lies_on_a_multiple_of_its_size(kernels):
    on_simulator_alone(kernels)
    with pytest.raises(RuntimeError, match=r"st\.async: .* multiple of its own size"):
        kernels.misplaced()


def test_what_is_not_known_ends_the_kernel_that_comes_to_it(kernels):
    on_simulator_alone(kernels)
    with pytest.raises(RuntimeError, match="does not know: exit"):
        kernels.unknown()


def test_shared_memory_of_a_block_that_has_not_started_yet(kernels):
    on_simulator_alone(kernels)
    y = kernels.zeros(16, 4)
    kernels.early(y)
    assert torch.equal(y, torch.arange(64, dtype=torch.int32).view(16, 4).roll(1, 1))


# Of an H100's instructions: the mask of bytes, and tiles that are no boxes, are Blackwell's.
NOT_KNOWN = r"tcgen05|multimem|clusterlaunchcontrol|cta_group::2|tile::(gather4|scatter4)|cp_mask"
NOT_KNOWN += r"|tensormap\.|sync_restrict|st\.bulk|%current_graph_exec|: exit"


@pytest.mark.slow
def test_all_of_its_instructions_but_these_are_known():
    generated = machine.cccl()[0] / "cuda/__ptx/instructions/generated"
    refused = []
    for path in sorted(generated.glob("*.h")):
        text = rewrite(path.read_text(), path.name, of_library=True)
        refused += re.findall(r'::simulator::__ptx::__ptx_unknown\("([^"]*)"\)', text)
    assert [each for each in refused if not re.search(NOT_KNOWN, each)] == []


def test_only_what_a_source_names_is_written(tmp_path):
    texts = ["ptx::mbarrier_init(&b, 1);", "int ld, exit;"]
    folder = cuda_ptx.write(tmp_path / "headers", texts, machine.cccl()[0])
    text = (folder / "cuda/ptx").read_text()
    assert "mbarrier_init(" in text
    assert "inline void st(" not in text
    assert len(text) < 100_000


def test_names_without_their_namespace(tmp_path):
    texts = ["using namespace cuda::ptx;\nvoid f() { mbarrier_init(&b, 1); }"]
    folder = cuda_ptx.write(tmp_path / "headers", texts, machine.cccl()[0])
    assert "mbarrier_init(" in (folder / "cuda/ptx").read_text()


def test_sources_that_speak_of_none_get_none(tmp_path):
    folder = cuda_ptx.write(tmp_path / "headers", ["int x;"], machine.cccl()[0])
    assert (folder / "cuda/ptx").read_text() == "#pragma once\n"
