"""All the same: the average takes it away. It is what y.sum().backward() sends."""

import torch

answer = torch.ones(8)
