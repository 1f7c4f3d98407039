"""Products and attention by tensor cores (docs/programs/tensor_cores), whole kernels."""

import pytest
import torch

import jitload
from docs.programs.ptx_cost import CASES, error, load

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_whole_kernel_is_as_exact_as_its_type(cache, case, target, monkeypatch):
    if target == "cuda":
        if torch.cuda.get_device_capability() < (9, 0):
            pytest.skip("for Hopper and later")
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")  # for wgmma
    inputs = case.drawn(256, target)
    truth = case.truth(*(x.double() for x in inputs))
    got = case.call(load(case, target), *inputs)
    if got.dtype == torch.bfloat16:
        limit = 2 * error(case.truth(*inputs), truth)
    else:  # a float32 sum is cut off once for 16 of k
        limit = 256 / 16 * 2**-23
    assert error(got, truth) <= limit
