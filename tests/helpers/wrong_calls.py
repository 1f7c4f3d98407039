"""Calls of an op's functions with one tensor replaced by what no function may take there."""

import warnings
from collections.abc import Iterator

import pytest
import torch
from op_cases import DEVICE, copied
from torch import Tensor


def quantized(shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings(action="ignore"):  # PyTorch means to drop these types
        return torch.quantize_per_tensor(torch.zeros(shape, device=DEVICE), 0.5, 0, torch.quint8)


def wrong_tensors(tensor: Tensor, others: list[Tensor]) -> Iterator[tuple[str, Tensor | None]]:
    """How each is wrong, and what stands in the tensor's place beside the others of a call."""
    yield "None", None
    yield (
        "of another type",
        torch.zeros_like(tensor, dtype=torch.uint8 if tensor.dtype == torch.int8 else torch.int8),
    )
    yield "quantized", quantized(tensor.shape)
    if tensor.dim():
        yield "sparse", torch.zeros(tensor.shape, device=DEVICE).to_sparse()
    if any(other.numel() > 1 for other in others):  # beside one number any shape is right
        yield "of another shape", tensor.new_empty(tensor.numel() + 1)  # float4 has no zeros there
    if any(other.is_floating_point() for other in others):
        yield "of another precision", torch.zeros_like(tensor, dtype=torch.float64)


def wrong_calls(
    op: torch._ops.OpOverload, arguments: list
) -> Iterator[tuple[str, str, list[object]]]:
    """(the argument's name, how it is wrong, the arguments with copies of the others)."""
    for place, (tensor, argument) in enumerate(zip(arguments, op._schema.arguments, strict=False)):
        if not isinstance(tensor, Tensor):
            continue
        others = [a for n, a in enumerate(arguments) if isinstance(a, Tensor) and n != place]
        for how, wrong in wrong_tensors(tensor, others):
            if wrong is None and "Optional" in str(argument.type):
                continue
            changed = [wrong if n == place else copied(a) for n, a in enumerate(arguments)]
            yield argument.name, how, changed


def assert_each_tensor_is_checked(op: torch._ops.OpOverload, arguments: list) -> None:
    """Every wrong call is refused by an error that names the argument and says what is wanted."""
    for argument, how, changed in wrong_calls(op, arguments):
        with pytest.raises(RuntimeError) as raised:
            op(*changed)
        message = f"{op}: {argument} {how}: {raised.value}"
        assert argument in str(raised.value), message
        assert "wanted" in str(raised.value), message
