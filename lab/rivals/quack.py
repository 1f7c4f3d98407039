"""quack-kernels' kernels (CuTe DSL), as functions of our ops' names and arguments."""

import importlib

import quack

# The package has a function of the same name, which hides the module.
_norms = importlib.import_module("quack.rmsnorm")


def rms_norm(x, weight, residual=None, eps=1e-6):
    if residual is None:
        return _norms.rmsnorm(x, weight, eps=eps)
    return _norms.rmsnorm(x, weight, residual=residual, prenorm=True, eps=eps)


def softmax(x):
    return quack.softmax(x)


def cross_entropy(x, target, reduction="mean", ignore_index=-100):
    return quack.cross_entropy(x, target, reduction=reduction, ignore_index=ignore_index)


def matmul(x, w, bias=None, residual=None, act="none", scale=1.0):
    gemm = importlib.import_module("quack.gemm_interface")
    if residual is None and act == "none":
        return gemm.gemm(x, w.mT, bias=bias, alpha=scale)
    if residual is not None and act == "none":
        return gemm.gemm_add(x, w.mT, residual, bias=bias, alpha=scale)
    if residual is None and act in ("relu", "silu"):
        ends = {"bias": bias, "activation": act, "alpha": scale, "store_preact": False}
        return gemm.gemm_act(x, w.mT, **ends)[1]
    raise NotImplementedError("quack has no product with that end")
