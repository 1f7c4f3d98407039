"""What our kernels are held against: PyTorch, and other people's kernels where they are installed.

A library that is not installed is no rival, and neither is one without a kernel for the op.
"""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from functools import partial

from lab.case import Implementation, compiled, eager
from reference import Op


def _liger() -> dict[str, Callable]:
    """Liger-Kernel's (Triton), by our op's name and with its arguments."""
    from liger_kernel import ops as liger

    def rms_norm(x, weight, residual=None, eps=1e-6):
        if residual is None:
            # in_place=False: backward would write its result over the gradient that arrives.
            return liger.LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)
        return liger.LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps)

    def cross_entropy(x, target, reduction="mean", ignore_index=-100, label_smoothing=0.0):
        if x.requires_grad:
            # Its forward computes the gradient and writes it over x: the backward pass alone is
            # no work that could be timed.
            raise NotImplementedError("Liger-Kernel's cross_entropy has no backward of its own")
        return liger.LigerCrossEntropyFunction.apply(
            x, target, None, ignore_index, 0.0, label_smoothing, reduction
        )[0]

    return {
        "layer_norm": lambda x, weight, bias, eps=1e-5: liger.LigerLayerNormFunction.apply(
            x, weight, bias, eps
        ),
        "rms_norm": rms_norm,
        "softmax": lambda x: liger.LigerSoftmaxFunction.apply(x),
        "swiglu": lambda a, b: liger.LigerSiLUMulFunction.apply(a, b),
        "cross_entropy": cross_entropy,
    }


def _quack() -> dict[str, Callable]:
    """quack-kernels' (CuTe DSL), by our op's name and with its arguments."""
    import quack

    # The package has a function of the module's name, which hides the module.
    norms = importlib.import_module("quack.rmsnorm")

    def cross_entropy(x, target, reduction="mean", ignore_index=-100):
        return quack.cross_entropy(x, target, reduction=reduction, ignore_index=ignore_index)

    def rms_norm(x, weight, residual=None, eps=1e-6):
        if residual is None:
            return norms.rmsnorm(x, weight, eps=eps)
        return norms.rmsnorm(x, weight, residual=residual, prenorm=True, eps=eps)

    return {"rms_norm": rms_norm, "softmax": quack.softmax, "cross_entropy": cross_entropy}


# By label: the module to import, the package to install, and our ops in terms of its functions.
LIBRARIES = {
    "liger": ("liger_kernel", "liger-kernel", _liger),
    "quack": ("quack", "quack-kernels", _quack),
}


def _of_library(op: Op, name: str) -> Implementation:
    module, package, functions = LIBRARIES[name]
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"rival {name}: pip install {package}", name=module)
    if op.name not in (known := functions()):
        raise ValueError(f"rival {name}: {package} has no {op.name}; it has {', '.join(known)}")
    return Implementation(name, known[op.name])


RIVALS: dict[str, Callable[[Op], Implementation]] = {
    "eager": eager,
    "compile": compiled,
    **{name: partial(_of_library, name=name) for name in LIBRARIES},
}
PYTORCH = ("eager", "compile")


def rivals_of(op: Op) -> list[str]:
    """The names of all rivals that are here and have a kernel for the op."""
    there = [*PYTORCH]
    for name, (module, _, functions) in LIBRARIES.items():
        if importlib.util.find_spec(module) and op.name in functions():
            there.append(name)
    return there


def versions() -> dict[str, str | None]:
    """The version of each library, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name, (_, package, _) in LIBRARIES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
