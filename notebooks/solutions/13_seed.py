"""A module is made once and called in every step: there the seed has to be drawn."""

from torch import nn

from kernels.dropout_layer_norm import dropout_layer_norm


class DropoutNorm(nn.LayerNorm):
    def __init__(self, width, p):
        super().__init__(width)
        self.p = p

    def forward(self, x, residual):
        p = self.p if self.training else 0.0
        return dropout_layer_norm(x, residual, self.weight, self.bias, p, self.eps)


answer = DropoutNorm
