"""log(2) is lost beside 2^26, where neighbouring floats are 8 apart: the loss comes out as 0."""

import torch

answer = torch.full((2,), 2.0**26)
