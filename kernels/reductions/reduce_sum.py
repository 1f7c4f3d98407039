"""reduce_sum: the sum of each row, or of everything."""

from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("reduce_sum")
VERSIONS = ("naive", "shared", "vector")


def reduce_sum(x: Tensor, dim: int | None = -1, *, version: str = VERSIONS[-1]) -> Tensor:
    """The sum of x [..., cols] over its last dimension, or over all of them with dim=None.

    x is float64, float32, float16 or bfloat16 and so is the result, of shape [...] or []. Sums run
    in float (double for double) and are rounded once; an empty sum is 0. The same input gives the
    same bits on every run. Gradients of every order are right: the gradient is grad, expanded.

    Raises RuntimeError if x has another type, no dimension to sum over or is not where the kernel
    runs, and ValueError if dim is neither -1, x.dim() - 1 nor None, or the version is unknown.
    """
    if not (dim is None or dim == -1 or dim == x.dim() - 1):
        raise ValueError(f"dim is {dim!r}; wanted is -1 (the last dimension) or None (all of them)")
    return kernel.forward(x, dim is None, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, over_all, version):
    return x.new_empty(() if over_all else x.shape[:-1])


kernel.register_autograd("forward", "x = expand(grad)")
