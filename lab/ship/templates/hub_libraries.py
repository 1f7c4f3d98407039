"""The operators that kernel-builder has compiled, under the name that it gives each build."""

import torch

from PACKAGE._ops import add_op_namespace_prefix


def operators(kernel: str, namespace: str) -> str:
    """The namespace of this build's operators."""
    return add_op_namespace_prefix(kernel).partition("::")[0]


def why_no_gpu(kernel: str) -> str:
    """Nothing to say: each build is for one kind of device, which PyTorch knows."""
    return ""


def has_gpu_part() -> bool:
    """Whether this build is one for the GPU that is here."""
    return torch.cuda.is_available()
