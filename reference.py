"""The truth: one pure-PyTorch function per op, with the shapes of its inputs beside it.

Run in float64 a function here is the truth that a kernel is judged by; run in the kernel's own type
it is the bar: PyTorch's error in that type. Tests, comparisons and tables find the ops in `OPS`.

To add an op, write its function here under `@op(argument="shape in letters", ...)`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

OPS: dict[str, "Op"] = {}


@dataclass(frozen=True)
class Op:
    """One op: what it computes and what it takes.

    name: as in `kernels/NAME.py`.
    function: the pure-PyTorch function.
    shapes: each tensor argument's shape in letters, such as {"x": "rows cols"}.
    options: the other arguments that tests and tables go through, a dict each; ({},) if none.
    """

    name: str
    function: Callable[..., Tensor]
    shapes: dict[str, str]
    options: tuple[dict, ...]

    def inputs(
        self,
        rows: int,
        cols: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        requires_grad: bool = False,
    ) -> dict[str, Tensor]:
        """Random tensors for every tensor argument, the same whenever seed and device are the same.

        Each is offset + scale * normal noise, with an offset in [-2, 2] and a scale in [0.5, 2].
        """
        letters = {"rows": rows, "cols": cols}
        generator = torch.Generator(device).manual_seed(seed)
        # The dice are rolled in a type at least as wide as the one asked for.
        wide = torch.promote_types(dtype, torch.float32)
        tensors = {}
        for name, shape in self.shapes.items():
            size = [letters[letter] for letter in shape.split()]
            noise = torch.randn(size, dtype=wide, device=device, generator=generator)
            offset, scale = torch.rand(2, dtype=wide, device=device, generator=generator)
            value = noise.mul_(0.5 + 1.5 * scale).add_(4 * offset - 2)
            tensors[name] = value.to(dtype).requires_grad_(requires_grad)
        return tensors


def op(*options: dict, **shapes: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Registers the function below it in `OPS`.

    shapes: each tensor argument's shape in the letters "rows" and "cols", such as x="rows cols".
    options: the other arguments that tests and tables should go through, a dict for each variant.
    """

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        if unknown := shapes.keys() - inspect.signature(function).parameters.keys():
            raise TypeError(f"{function.__name__} has no argument {', '.join(sorted(unknown))}")
        OPS[function.__name__] = Op(function.__name__, function, shapes, options or ({},))
        return function

    return register


@op(x="rows cols")
def square(x: Tensor) -> Tensor:
    """y = x * x"""
    return x * x


@op(x="rows cols")
def relu(x: Tensor) -> Tensor:
    """y = max(x, 0); a NaN stays a NaN"""
    return torch.relu(x)


@op(x="rows cols", scale="cols", bias="cols")
def scale_bias_relu(x: Tensor, scale: Tensor | float, bias: Tensor) -> Tensor:
    """y[r, c] = max(x[r, c] * scale[c] + bias[c], 0)"""
    return torch.relu(x * scale + bias)


@op({"dim": -1}, {"dim": None}, x="rows cols")
def reduce_sum(x: Tensor, dim: int | None = -1) -> Tensor:
    """y[r] = sum over c of x[r, c]; with dim=None, y = sum over all of x"""
    return x.sum(dim)


@op(x="rows cols", weight="cols", bias="cols")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """y[r, c] = (x[r, c] - mean[r]) / sqrt(var[r] + eps) * weight[c] + bias[c]

    mean[r] and var[r] are those of row r; var divides by cols, not by cols - 1.
    Source: Ba, Kiros, Hinton, "Layer Normalization", 2016.
    """
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
