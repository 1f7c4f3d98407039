"""e^100 is no float32: infinity / infinity."""

import torch

answer = torch.full((4,), 100.0)
