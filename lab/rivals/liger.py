"""Liger-Kernel's kernels (Triton), as functions of our ops' names and arguments."""

from liger_kernel import ops as liger

GRADIENTS_IN_FORWARD = ("linear_cross_entropy",)


def layer_norm(x, weight, bias, eps=1e-5):
    return liger.LigerLayerNormFunction.apply(x, weight, bias, eps)


def rms_norm(x, weight, residual=None, eps=1e-6):
    if residual is None:
        # in_place=False: else backward would overwrite the incoming gradient.
        return liger.LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)
    return liger.LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps)


def softmax(x):
    return liger.LigerSoftmaxFunction.apply(x)


def swiglu(a, b):
    return liger.LigerSiLUMulFunction.apply(a, b)


def cross_entropy(x, target, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    if x.requires_grad:
        # Its forward computes the gradient and overwrites x with it: the backward pass alone has
        # no work to time.
        raise NotImplementedError("Liger-Kernel's cross_entropy has no backward of its own")
    return liger.LigerCrossEntropyFunction.apply(
        x, target, None, ignore_index, 0.0, label_smoothing, reduction
    )[0]


def linear_cross_entropy(
    x, w, target, bias=None, reduction="mean", ignore_index=-100, label_smoothing=0.0
):
    return liger.LigerFusedLinearCrossEntropyFunction.apply(
        x, w, target, bias, None, ignore_index, 0.0, label_smoothing, reduction
    )[0]


def rope(qkv, cos, sin, heads=2, kv_heads=1, interleaved=False):
    if interleaved:
        raise NotImplementedError("Liger-Kernel's rope has the pairs of Llama alone")
    x = qkv.unflatten(-1, (heads + 2 * kv_heads, -1)).transpose(1, 2)
    q, k, v = x.split((heads, kv_heads, kv_heads), 1)
    # Without the tables' first dimension it would take the tokens for sequences. It rotates as many
    # numbers of a head as the tables have columns, because its own hold each angle twice.
    q, k = liger.LigerRopeFunction.apply(q, k, cos[None], sin[None], None, 1, q.shape[-1])[:2]
    return q, k, v
