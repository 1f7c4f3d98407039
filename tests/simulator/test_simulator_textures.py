"""Textures and surfaces, against the formulas of the CUDA Programming Guide, worked out here.

Where there is a GPU, the same source is compiled by nvcc too and must pass there as well.
"""

import math
from pathlib import Path

import pytest
import torch

import jitload

SOURCE = Path(__file__).parent / "kernels" / "textures.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
WRAP, CLAMP, MIRROR, BORDER = range(4)
ACROSS = [-7.3, -2.2, -0.7, 0.1, 0.3, 0.6, 0.9, 2.4, 4.4, 5.3]
POINTS = [-7.25, -2.0, -0.75, -0.5, 0.0, 0.3, 0.5, 0.99, 1.0, 1.6, 2.5, 3.1, 4.49, 5.0, 5.2, 11.0]


class Textures:
    def __init__(self, target: str):
        self.device = torch.device(target)
        self.library = jitload.load(str(SOURCE), name="test_textures", target=target)

    def __getattr__(self, function: str):
        return getattr(self.library, f"run_{function}")

    def tensor(self, values, dtype=torch.float32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def zeros(self, *shape: int, dtype=torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)


@pytest.fixture(scope="module", params=TARGETS)
def textures(request):
    return Textures(request.param)


def index(i: int, n: int, mode: int, normalized: bool) -> int | None:
    """The texel that is meant, or None for the border's 0."""
    if 0 <= i < n:
        return i
    if mode == BORDER:
        return None
    if normalized and mode == WRAP:
        return i % n
    if normalized and mode == MIRROR:
        return min(i % (2 * n), 2 * n - 1 - i % (2 * n))
    return min(max(i, 0), n - 1)


def taps(x: float, n: int, mode: int, linear: bool, normalized: bool) -> list[tuple]:
    """The texels around x, with their weights: 8 bits of fraction."""
    if normalized:
        x *= n
    if not linear:
        return [(index(math.floor(x), n, mode, normalized), 1.0)]
    x -= 0.5
    weight = round((x - math.floor(x)) * 256) / 256
    i = math.floor(x)
    return [
        (index(i, n, mode, normalized), 1 - weight),
        (index(i + 1, n, mode, normalized), weight),
    ]


@pytest.mark.parametrize("mode", [WRAP, CLAMP, MIRROR, BORDER])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_one_dimension(textures, mode, linear, normalized):
    texels = [3.0, -1.0, 4.0, 1.5, 9.25]
    on_gpu = textures.device.type == "cuda"
    # A quarter of 1.6 is 2 of 5 texels, where a GPU's fixed-point numbers are just below.
    points = [x / 4 for x in POINTS if x != 1.6 or not on_gpu] if normalized else POINTS
    y = torch.zeros(len(points), device=textures.device)
    textures.floats(
        textures.tensor(texels), 5, 0, textures.tensor(points), y, len(points), mode, linear,
        normalized,
    )  # fmt: skip
    # A GPU reads at 0 of a second dimension, which has the same address mode: half is the border.
    part = 0.5 if mode == BORDER and linear else 1.0
    # It rounds the product of two weights to 8 bits, too; the simulator does not.
    off = max(texels) / 512 if on_gpu and part == 0.5 else 1e-6
    wanted = [
        sum(part * w * texels[i] for i, w in taps(x, 5, mode, linear, normalized) if i is not None)
        for x in points
    ]
    assert y.tolist() == pytest.approx(wanted, rel=1e-6, abs=off)


@pytest.mark.parametrize("mode", [CLAMP, BORDER, MIRROR])
@pytest.mark.parametrize("linear", [False, True])
def test_two_dimensions_of_bytes_as_fractions(textures, mode, linear):
    texels = [[7 * (5 * r + c) % 251 for c in range(5)] for r in range(3)]
    points = [(x / 5, y / 3) for x in ACROSS for y in (-0.6, 0.5, 1.3, 2.6, 3.1)]
    y = torch.zeros(len(points), device=textures.device)
    textures.bytes(
        textures.tensor(texels, torch.uint8), 5, 3, textures.tensor(points), y, len(points), mode,
        linear, True,
    )  # fmt: skip
    wanted = [
        sum(
            wx * wy * texels[j][i] / 255
            for i, wx in taps(x, 5, mode, linear, True)
            for j, wy in taps(y, 3, mode, linear, True)
            if i is not None and j is not None
        )
        for x, y in torch.tensor(points).tolist()
    ]
    assert y.tolist() == pytest.approx(wanted, abs=2e-6 if textures.device.type == "cpu" else 2e-3)


def test_integers_as_they_are_cannot_be_filtered(textures):
    assert textures.unfilterable(textures.zeros(6)) != 0


def test_linear_and_pitched_memory(textures):
    y = textures.zeros(16)
    textures.memory(textures.tensor([10, 11, 12, 13, 14, 15], torch.int32), y)
    assert y[:8].tolist() == [0, 10, 11, 12, 13, 14, 15, 0]
    clamped = [(i % 3, min(i // 3, 1)) for i in range(8)]
    first = [4 * (3 * row + column) for column, row in clamped]
    assert y[8:].tolist() == [byte + 256 * (byte + 3) for byte in first]


def test_surfaces(textures):
    y, everything = textures.zeros(16), textures.zeros(3, 4, dtype=torch.int16)
    textures.surface(y, everything)
    assert everything.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]
    assert y[:8].tolist() == [10, 10, 11, 12, 13, 13, 13, 13]
    assert y[8:].tolist() == [20, 21, 22, 23, 0, 0, 0, 0]


def test_volumes_layers_and_cubes(textures):
    y = torch.zeros(24, device=textures.device)
    textures.volume(torch.arange(24, dtype=torch.float32, device=textures.device), y)
    halfway = [i % 2 + 2 * (i // 2 % 2) + 4 * (i // 4) + 2 for i in range(8)]
    assert y[:8].tolist() == halfway
    assert y[8:16].tolist() == [1 + 4 * min(layer, 5) for layer in range(8)]
    assert [int(value) // 4 for value in y[16:22].tolist()] == [0, 1, 2, 3, 4, 5]
