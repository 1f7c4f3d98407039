"""All numbers the same: the variance is 0, and 0 is divided by 0."""

import torch

answer = torch.full((8,), 3.0)
