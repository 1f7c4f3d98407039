"""A transposed matrix has the same elements, elsewhere: every sum over all of them is right."""

import torch

answer = torch.arange(6.0).view(2, 3).T
