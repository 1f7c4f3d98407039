"""CUB on the simulator: warps, blocks, and the whole device."""

from pathlib import Path

import pytest
import torch

import jitload

SOURCE = Path(__file__).parent / "kernels" / "cub.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]


@pytest.fixture(scope="module", params=TARGETS)
def run(request):
    library = jitload.load(SOURCE, name="test_cub", target=request.param)

    def run(name: str, x: torch.Tensor, size: int) -> torch.Tensor:
        y = torch.zeros(size, dtype=torch.int32, device=request.param)
        getattr(library, f"run_{name}")(x.to(request.param), y, len(x))
        return y.cpu()

    return run


def numbers(count: int, low: int = -100, high: int = 100) -> torch.Tensor:
    return torch.randint(low, high, (count,), generator=torch.Generator().manual_seed(count)).int()


def running_max(x: torch.Tensor) -> torch.Tensor:
    return x.cummax(-1).values


@pytest.mark.parametrize("lanes", [32, 8])
def test_warps(run, lanes):
    x = numbers(128)
    y, parts = run(f"warps_of_{lanes}", x, 6 * 128).view(6, -1, lanes), x.view(-1, lanes)
    assert torch.equal(y[0, :, 0], parts.sum(1).int())
    assert torch.equal(y[1, :, 0], parts[:, :3].max(1).values)
    for t in range(128):  # segments begin at multiples of 5, and where a part of a warp does
        if t % 5 == 0 or t % lanes == 0:
            end = min((t // 5 + 1) * 5, (t // lanes + 1) * lanes)
            assert y[2].flatten()[t] == x[t:end].sum()
    assert torch.equal(y[3], parts.cumsum(1).int())
    before = torch.cat([torch.full_like(parts[:, :1], -1000), running_max(parts)[:, :-1]], 1)
    assert torch.equal(y[4], before)
    assert torch.equal(y[5], parts.sum(1, keepdim=True).int().expand_as(parts))


@pytest.mark.parametrize("by", ["raking", "warps"])
def test_a_block_reduces(run, by):
    x = numbers(384)
    wanted = [x.sum(), x[:128].max(), x[:77].sum()]
    assert run(f"reduced_by_{by}", x, 3).tolist() == wanted


@pytest.mark.parametrize("n", [1, 256, 1000])
def test_a_block_scans_tiles(run, n):
    x = numbers(n)
    assert torch.equal(run("tiles", x, n), (x.cumsum(0) - x).int())


def test_a_block_scans(run):
    x = numbers(100)
    inclusive, exclusive, total = run("scanned", x, 300).view(3, -1)
    assert torch.equal(inclusive, running_max(x))
    assert torch.equal(exclusive, (5 + x.cumsum(0) - x).int())
    assert total.eq(x.max()).all()


def test_a_block_sorts(run):
    x = numbers(384)
    places, low = run("sorted", x, 768).view(2, -1)
    keys = torch.div(x, 4, rounding_mode="trunc").float()
    assert torch.equal(places, keys.sort(descending=True, stable=True).indices.int())
    assert torch.equal(low, x[(x & 15).sort(stable=True).indices])


def test_neighbours_histogram_and_exchange(run):
    x = numbers(384, 0, 3)
    y = run("neighbours", x, 3 * 384 + 10)
    heads, differences, scattered = y[: 3 * 384].view(3, -1)
    assert torch.equal(heads[1:], (x[1:] != x[:-1]).int())
    assert heads[0] == 1
    assert torch.equal(differences, x.diff(prepend=torch.zeros(1, dtype=torch.int32)))
    assert torch.equal(scattered, x.flip(0))
    assert torch.equal(y[3 * 384 :], torch.bincount(x, minlength=10).int())


def test_the_device_reduces(run):
    x = numbers(5000)
    at = int(x.argmax())
    wanted = [x.sum(), x.min(), x.max(), x.max(), x[at], x.tolist().index(x[at])]
    assert run("whole_reductions", x, 6).tolist() == wanted


def test_the_device_scans(run):
    x = numbers(5000)
    sums, before = run("whole_scans", x, 10000).view(2, -1)
    assert torch.equal(sums, x.cumsum(0).int())
    assert torch.equal(before[1:], running_max(x)[:-1].clamp(min=-7))
    assert before[0] == -7


def test_the_device_sorts(run):
    x = numbers(5000)
    keys, low, values = run("whole_sorts", x, 15000).view(3, -1)
    assert torch.equal(keys, x.sort().values)
    assert torch.equal(low, x[(x & 3).sort(descending=True, stable=True).indices])
    assert torch.equal(values, low)


def test_the_device_selects(run):
    x = numbers(1000, 0, 3)
    y = run("whole_selections", x, 3 * 1000 + 2)
    assert y[0] == x.remainder(2).eq(0).sum()
    assert torch.equal(y[1 : 1 + y[0]], x[x % 2 == 0])
    values, lengths = torch.unique_consecutive(x, return_counts=True)
    assert y[1001] == len(values)
    assert torch.equal(y[1002:][: len(values)], values)
    assert torch.equal(y[2002:][: len(values)], lengths.int())


def test_the_device_counts(run):
    x = numbers(5000, -120, 330)
    inside = x[(x >= -100) & (x < 300)]
    wanted = torch.bincount((inside + 100) // 50, minlength=8)
    assert torch.equal(run("whole_histogram", x, 8), wanted.int())


def test_traits_give_the_order_of_keys(run):
    assert run("traits", numbers(1), 4).tolist() == [1, 1, 1, 1]


def test_a_graph_holds_an_algorithm(run):
    x = numbers(100, 1, 3)
    total = int(x.sum())
    assert run("whole_in_a_graph", x, 2).tolist() == [total, 2 * total]


def test_what_goes_wrong_is_an_error_at_its_line():
    library = jitload.load(SOURCE, name="test_cub", target="cpu")
    y = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"cub::DeviceReduce::Reduce.*illegal memory") as caught:
        library.run_whole_of_nothing(y, y, 10)
    lines = SOURCE.read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if "// READS" in line)
    assert f"cub.cu:{line}," in str(caught.value)
