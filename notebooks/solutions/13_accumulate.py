"""What is no buffer of the module stays float32, and in no checkpoint; it is made where x is."""

import torch
from torch import nn

from kernels.rms_norm import rms_norm


class AccumulatingNorm(nn.RMSNorm):
    def __init__(self, width, eps=1e-6):
        super().__init__(width, eps=eps)
        self.main_grad = None

    def forward(self, x):
        if self.main_grad is None:
            self.main_grad = torch.zeros(self.weight.shape, device=x.device)
        return rms_norm(x, self.weight, eps=self.eps, dweight=self.main_grad)


answer = AccumulatingNorm
