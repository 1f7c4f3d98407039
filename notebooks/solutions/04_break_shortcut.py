"""The variance is a quarter; the squares are 10^10, where neighbouring floats are 1024 apart."""

import torch

answer = 100_000 + torch.tensor([-0.5, 0.5] * 32)
