"""Awkward sizes, layouts and values, which the tests of the ops and `lab.audit` try.

A layout takes a tensor and returns one of the same shape. `expanded`, `zero_strided` and
`overlapping` repeat values; the other layouts keep them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# 1, primes, powers of two and their neighbours, then sizes above a block's threads.
SIZES = (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 513)
LARGE_SIZES = (1000, 1023, 1024, 1025, 2047, 2049, 4096, 4097, 8200)
MANY_ROWS = 2**16 + 1  # above 65535, the limit of a grid's y and z dimensions
SCALES = (1e-4, 1.0, 1e4)
OFFSETS = (0.0, 30.0, -1e3)

NAN, INF = float("nan"), float("inf")
# Each entry is a row: most hold one special value, the last ones two.
SPECIAL_ROWS = ([NAN], [INF], [-INF], [0.0], [-0.0], [INF, -INF], [INF, INF], [NAN, INF])


def special_values(dtype: torch.dtype) -> list[float]:
    """Zeros, ones, infinities, NaN, the largest numbers, and the smallest, subnormal ones too."""
    info = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN]
    return [*values, info.max, info.min, info.tiny, -info.tiny, info.smallest_normal / 2]


# ---- layouts


def transposed(t: Tensor) -> Tensor:
    """A transposed memory layout; for a vector, every third element of a larger one."""
    if t.dim() > 1:
        return t.mT.contiguous().mT
    return t.repeat_interleave(3)[::3] if t.dim() else t


def strided(t: Tensor) -> Tensor:
    """Every second element of a larger tensor."""
    other = -t if t.is_floating_point() and t.itemsize > 1 else t
    return torch.stack((t, other), -1)[..., 0]


def sliced(t: Tensor) -> Tensor:
    """Rows of a wider tensor, like the gradient of torch.cat."""
    wider = torch.cat((t, t, t), -1) if t.dim() else t.repeat(3)
    return wider[..., t.shape[-1] : 2 * t.shape[-1]] if t.dim() else wider[1]


def expanded(t: Tensor) -> Tensor:
    """One row for all, with stride 0, like the gradient of sum()."""
    return t[:1].expand(t.shape) if t.dim() else t


def zero_strided(t: Tensor) -> Tensor:
    """One element for all."""
    return t.reshape(-1)[:1].expand(t.shape) if t.numel() and t.dim() else t


def overlapping(t: Tensor) -> Tensor:
    """Overlapping windows of a vector, each one element further: elements share memory."""
    if t.dim() < 2 or not t.numel():
        return t
    row = t.reshape(-1)
    strides = [1] * t.dim()
    return row.as_strided(t.shape, strides, row.storage_offset())


def misaligned(t: Tensor) -> Tensor:
    """Contiguous, but one element past a 16-byte boundary."""
    return t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t)


def flipped(t: Tensor) -> Tensor:
    """Reversed along the first dimension."""
    return t.flip(0) if t.dim() else t


def channels_last(t: Tensor) -> Tensor:
    """channels_last for tensors of four dimensions; others stay as they are."""
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {
    it.__name__: it
    for it in (
        *(transposed, strided, sliced, expanded, zero_strided, overlapping, misaligned),
        channels_last,
    )
}
