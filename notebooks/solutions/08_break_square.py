"""The square of 10^20 is infinite in float32, and 1 / infinity is 0."""

import torch

answer = torch.tensor([1e20, -1e20])
