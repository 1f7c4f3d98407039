"""Far below 0 every power is 0, and so is their sum."""

import torch

answer = torch.tensor([-200.0, -201.0])
