"""The ops, in a folder for each family; square, the shortest, stands before them.

    elementwise/  relu, scale_bias_relu, swiglu, rope, quantize, quantize_mxfp8, quantize_nvfp4
    norms/        layer_norm, rms_norm, dropout_layer_norm
    reductions/   reduce_sum, softmax, and the losses: cross_entropy, linear_cross_entropy
    matmul/       matmul, matmul_fp8, matmul_w8a16, matmul_block_scaled, grouped_matmul
    attention/    attention, attention_varlen, attention_decode
    include/      headers of several families, and of everybody's kernels

The files of an op stand side by side: NAME.cu holds the kernels, NAME.cpp the binding, NAME.py the
gradients and the public function. Where an op has versions for rows too wide for one block,
NAME_wide.cuh has their kernels. A source names a header of its own folder or of include/ by its
name alone, and one of another family as "../FAMILY/NAME".

An op is imported, and loaded, by its name alone: `from kernels.layer_norm import layer_norm`
compiles it at the first import; later ones use the cache.
Every op takes `version=`, a name from `VERSIONS` in NAME.py, from the naive kernel to the best.

Inside torch.autocast products are in autocast's type and losses in float32, as PyTorch's are. What
PyTorch casts to float32 on a GPU besides, softmax, norms and sums, keeps its type here (the widest,
where tensors differ): the arithmetic is float without a cast, and a product that follows would cast
the result back.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path

import torch
from torch import Tensor

__path__ += [  # the modules of the ops are found in the folders of families, too
    str(folder)
    for folder in sorted(Path(__file__).parent.iterdir())
    if folder.is_dir() and folder.name[0] not in "._" and folder.name != "include"
]


def version_number(version: str, versions: tuple[str, ...]) -> int:
    """The number by which the launcher knows a version. Raises ValueError for an unknown name."""
    if version not in versions:
        raise ValueError(f"version is {version!r}; wanted is one of {', '.join(versions)}")
    return versions.index(version)


# What shares a scale among numbers of one byte, by the numbers of include/float8.h.
SCALINGS = ("tensor", "row", "1x128", "128x128")


def scaling_number(scaling: str, scalings: tuple[str, ...] = SCALINGS) -> int:
    """The number by which bindings know a scaling. Raises ValueError for one not among scalings."""
    if scaling not in scalings:
        raise ValueError(f"scaling is {scaling!r}; wanted is one of {', '.join(scalings)}")
    return SCALINGS.index(scaling)


def new_quantized(x: Tensor, scaling: int) -> tuple[Tensor, Tensor]:
    """Uninitialised: float8_e4m3fn in x's shape, and float32 for the scales that it then has."""
    *leading, cols = x.shape
    blocks = 1 if SCALINGS[scaling] == "row" else -(-cols // 128)
    if SCALINGS[scaling] == "128x128":
        leading = [-(-rows // 128) for rows in leading]
    scales = x.new_empty((*leading, blocks), dtype=torch.float32)
    return x.new_empty(x.shape, dtype=torch.float8_e4m3fn), scales


def new_block_scales(x: Tensor, block: int, dtype: torch.dtype) -> Tensor:
    """Uninitialised: a scale for each block of x [..., cols], in tiles of 128 rows and 4 blocks."""
    *leading, cols = x.shape
    tiles = -(-math.prod(leading) // 128) * -(-(cols // block) // 4)
    return x.new_empty(512 * tiles, dtype=dtype)


def is_in_autocast(t: object) -> bool:
    """Whether t is a tensor, and torch.autocast enabled for its device."""
    if not torch._C._is_any_autocast_enabled():  # asked in each call, this is quick
        return False
    if not isinstance(t, Tensor):
        return False
    device = t.device.type
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)  # meta has none


def product_dtype(t: Tensor) -> torch.dtype:
    """The type in which a product takes t: inside torch.autocast its own, unless t is float64."""
    if t.dtype == torch.float64 or not is_in_autocast(t):
        return t.dtype
    return torch.get_autocast_dtype(t.device.type)


def no_gradient(op: str) -> None:
    """Raises RuntimeError where somebody differentiates what has no gradient."""
    raise RuntimeError(
        f"{op} has no gradient; call it under torch.no_grad(), or with tensors that were detached"
    )


def check_int64(value: object, name: str, otherwise: str = "") -> None:
    """Raises ValueError for what is no int of 64 bits; `otherwise` is what else may be given."""
    if not isinstance(value, Integral) or not -(2**63) <= value < 2**63:
        wanted = f"an int from -2**63 to 2**63 - 1{otherwise}"
        raise ValueError(f"{name} is {value!r}; wanted is {wanted}")


REDUCTIONS = ("none", "mean", "sum")  # of losses, by the numbers of cross_entropy_checks.h


def reduction_number(reduction: str, ignore_index: int, label_smoothing: float) -> int:
    """The number by which the bindings know a reduction, when the options of a loss are right.

    Raises ValueError for an unknown reduction, ignore_index or label_smoothing.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}; wanted is one of {', '.join(REDUCTIONS)}")
    if not isinstance(label_smoothing, Real) or not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing!r}; wanted is a number from 0 to 1")
    check_int64(ignore_index, "ignore_index")
    return REDUCTIONS.index(reduction)


def new_losses(x: Tensor, target: Tensor, reduction: int, float_loss: bool) -> tuple[Tensor, ...]:
    """What the forward pass of a loss returns, for its fake implementation: the loss, the max and
    the sum of each row, and for a mean its weight.

    float_loss: the loss has the type of the sums, not x's.
    """
    sums = torch.promote_types(x.dtype, torch.float32)
    of_loss = sums if float_loss else x.dtype
    return (
        x.new_empty(target.shape if reduction == 0 else (), dtype=of_loss),
        x.new_empty(target.shape, dtype=sums),
        x.new_empty(target.shape, dtype=sums),
        x.new_empty(int(reduction == 1), dtype=sums),
    )


def attention_limits(causal: bool, window: tuple[int, int] | None) -> tuple[int, int]:
    """How many keys a row of attention sees on either side; -1 for all.

    Raises ValueError if the window is not one, and if causal is no bool, such as a mask.
    """
    if not isinstance(causal, bool):
        what = f"a tensor {tuple(causal.shape)}" if isinstance(causal, Tensor) else repr(causal)
        raise ValueError(f"causal is {what}; wanted is True or False, and no mask is taken")
    left, right = -1, -1
    if window is not None:
        is_pair = isinstance(window, Sequence) and len(window) == 2
        left, right = window if is_pair else (None, None)
    if not all(isinstance(side, Integral) and -1 <= side < 2**63 for side in (left, right)):
        raise ValueError(f"window is {window!r}; wanted are two ints of 64 bits, -1 for no limit")
    return int(left), 0 if causal else int(right)


def attention_scale(q: Tensor) -> float:
    """What attention multiplies its scores by unless it is told otherwise: 1 / sqrt(cols)."""
    cols = q.shape[-1] if isinstance(q, Tensor) and q.dim() else 1
    return max(cols, 1) ** -0.5


def no_second_derivative(op: str) -> Tensor:
    """Stands where somebody may write one: raises RuntimeError."""
    raise RuntimeError(
        f"{op} has no second derivative; where you need one, use its formula in torch's own ops"
    )


def check_buffers(dweight: Tensor | None, dbias: Tensor | None) -> None:
    """Raises ValueError where one of the two buffers for gradients is missing."""
    if (dweight is None) != (dbias is None):
        missing, given = ("dweight", "dbias") if dweight is None else ("dbias", "dweight")
        raise ValueError(f"{missing} is None, but {given} is given; wanted are both or neither")
