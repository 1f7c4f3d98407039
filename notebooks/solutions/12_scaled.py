"""A factor that is a number has no gradient; one for x is made of what is saved."""

import torch

from kernels.square import square


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return factor * square(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * ctx.factor * grad * x, None


answer = Scaled
