"""dropout_layer_norm: y = layer_norm(residual + dropout(x)), row by row, in one pass."""

import torch
from torch import Tensor

import jitload
from kernels import check_buffers, check_int64, version_number

kernel = jitload.load("dropout_layer_norm")
VERSIONS = ("naive", "block", "vector", "cluster", "stream")


def dropout_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    p: float = 0.1,
    eps: float = 1e-5,
    seed: int | Tensor | None = None,
    offset: int = 0,
    *,
    dweight: Tensor | None = None,
    dbias: Tensor | None = None,
    version: str = VERSIONS[-1],
) -> tuple[Tensor, Tensor]:
    """(y, s): s = residual + dropout(x), and y is each row of it [..., cols], shifted and scaled to
    mean 0 and variance 1, * weight + bias.

    Dropout makes an element 0 with probability p and divides the others by 1 - p. p counts in steps
    of 1 / 65536, to the nearest of which it is rounded here; to evaluate a model pass p=0, which
    drops nothing. As in PyTorch what is dropped is multiplied by 0, so a NaN stays a NaN.

    x and residual have one shape, weight and bias are [cols], and all tensors are of one type:
    float64, float32, float16 or bfloat16. s is what the next layer adds to, and what is normalised
    is s as it is returned: rounded to that type, in float32 and float64 with the bits of PyTorch's
    residual + x * factor. Results are contiguous; mean and deviation are kept in float (double for
    double). The variance divides by cols; eps is added to it. Gradients have the same bits on every
    run. There is no second derivative: asking for one raises RuntimeError.

    seed      None draws one from PyTorch's generator of x's device: torch.manual_seed repeats it, a
              replay of a captured CUDA graph and a call under torch.compile draw anew. An int, or a
              tensor of one int64 beside x, decides the mask together with offset. Recorded in a
              graph, an int stays what it was; a tensor may be written to before each replay, but
              not between forward and backward.
    offset    tells masks of one seed apart, such as those of the layers of a model

    Element i of x, counted row by row, is dropped if its 16 random bits, as a number, are below
    65536 * p. They come from Philox4x32-10 with the key seed and the counter (i // 8, offset), all
    numbers of 64 bits whose low word comes first: of the four words that gives word i % 8 // 2, and
    of that the lower half if i is even, else the upper. So nothing but seed, offset, p and the
    number of the element decides the mask, and backward draws it again. `reference.factors` is the
    same in PyTorch.

    dweight, dbias: both or neither; buffers [cols] of float32 (float64 if x is), contiguous, to
    which backward adds the gradients of weight and bias, as layer_norm's does.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if p is not in [0, 1], seed or offset is no int of 64 bits, the version is unknown or
    one of dweight and dbias is missing.

    Sources: Srivastava et al., "Dropout", 2014; Ba, Kiros, Hinton, "Layer Normalization", 2016;
    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p is {p!r}; wanted is a probability from 0 to 1")
    check_int64(offset, "offset")
    check_buffers(dweight, dbias)
    number = version_number(version, VERSIONS)
    seed = _drawn(seed, x)
    return _forward(x, residual, weight, bias, seed, offset, p, eps, number, dweight, dbias)


def _drawn(seed: int | Tensor | None, x: Tensor) -> Tensor:
    """The seed where the kernel reads it: on the GPU, so that a captured graph can change it."""
    if isinstance(seed, Tensor):
        return seed
    device = x.device if isinstance(x, Tensor) else None  # what is no tensor, the op refuses
    if seed is None:
        return torch.randint(2**63 - 1, (), device=device)
    check_int64(seed, "seed", ", a tensor of one int64, or None")
    return torch.full((), seed, dtype=torch.int64, device=device)


def _new_sums(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


@kernel.register_fake("infer")
def _(x, residual, weight, bias, seed, offset, p, eps, version):
    return x.new_empty(x.shape), x.new_empty(x.shape)


@kernel.register_fake("forward")
def _(x, residual, weight, bias, seed, offset, p, eps, version, dweight=None, dbias=None):
    return x.new_empty(x.shape), x.new_empty(x.shape), _new_sums(x), _new_sums(x)


@kernel.register_fake("backward")
def _(grad, grad_sum, s, weight, mean, rstd, seed, offset, p, version):
    like_weight = weight.new_empty(weight.shape), weight.new_empty(weight.shape)
    return s.new_empty(s.shape), s.new_empty(s.shape), *like_weight


@kernel.register_fake("backward_into")
def _(grad, grad_sum, s, weight, mean, rstd, seed, dweight, dbias, offset, p, version):
    return s.new_empty(s.shape), s.new_empty(s.shape)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "dropout_layer_norm has no second derivative; where you need one, use "
        "torch.nn.functional.dropout(x, p) + residual and torch.nn.functional.layer_norm"
    )


kernel.register_autocast("infer")
kernel.register_autocast("forward", keep=("dweight", "dbias"))
_forward = kernel.register_autograd(
    "forward",
    """
    x, residual = backward_into(
        grad, grad_s, s, weight, mean, rstd, seed, dweight, dbias, offset, p, version
    )
    x, residual, weight, bias = backward(
        grad, grad_s, s, weight, mean, rstd, seed, offset, p, version
    )
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
