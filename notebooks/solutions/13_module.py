"""nn.RMSNorm's own __init__, weights and names, and only another forward."""

import torch
from torch import nn

from kernels.rms_norm import rms_norm


class RMSNorm(nn.RMSNorm):
    def forward(self, x):
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return rms_norm(x, self.weight, eps=eps)


answer = RMSNorm
