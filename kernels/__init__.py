"""The ops, the files of each side by side.

NAME.cu holds the kernels, NAME.cpp the binding, NAME.py the gradients and the public function.
Where an op has versions for rows too wide for one block, NAME_wide.cuh has their kernels.
`from kernels.square import square` compiles the op at the first import; later ones use the cache.
Every op takes `version=`, a name from `VERSIONS` in NAME.py, from the naive kernel to the best.
"""

from numbers import Integral

import torch
from torch import Tensor


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


def check_first_order(name: str) -> None:
    """Where backward is to add to buffers: raises RuntimeError if it is itself recorded.

    Nothing could be differentiated through a sum that goes into a buffer, and torch.func, which
    records every backward pass, allows no writing to what it does not know.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} cannot add to dweight where its backward pass is recorded (create_graph=True,"
            " torch.func): call it without a buffer there"
        )
