"""From the left the large two cancel before the ones come; from the right they swallow them."""

import torch

answer = torch.tensor([1e9, -1e9] + [1.0] * 30)
