"""Judges of chapter 12b: ops that others can use."""

import gc
import weakref

import torch
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from torch.autograd import gradcheck, gradgradcheck

from kernels.rms_norm import kernel as rms_norm
from lab.course.exercise import Claim, Near, answer, answer_with_bug
from notebooks.exercises.chapter_12 import TYPES, noise


@answer_with_bug
def kept(given):
    """The square root, and what it keeps for backward."""
    leaf = noise(5, dtype=torch.float64).abs().requires_grad_()
    y = given.apply(leaf)
    yield Claim(torch.equal(y, leaf.sqrt()), "apply(x) is not the root of x")
    yield Claim(gradcheck(given.apply, leaf, raise_exception=False), "the gradient is wrong")

    gc.collect()
    gc.disable()
    try:
        y = given.apply(leaf)
        there = weakref.ref(y)
        del y
        yield Claim(there() is None, "a result that nobody holds any more is still in memory")
    finally:
        gc.enable()
    y = given.apply(leaf)
    y.mul_(2)
    try:
        (dx,) = torch.autograd.grad(y.sum(), leaf)
    except RuntimeError:
        return
    yield Claim(
        torch.allclose(dx, 1 / leaf.detach().sqrt()),
        "y = 2 * root(x), doubled in place: the gradient is wrong, and nothing was said",
    )


@answer_with_bug
def fake(given):
    """The shapes, types and strides of what rms_norm's forward returns."""
    layouts = {
        "packed": lambda x: x,
        "transposed": lambda x: x.mT.contiguous().mT,
        "every other column": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    }
    for dtype in TYPES:
        for shape in [(3, 8), (8,), (2, 3, 8), (0, 8)]:
            for layout, made in layouts.items():
                if layout == "transposed" and len(shape) == 1:
                    continue
                x, weight = made(noise(*shape).to(dtype)), noise(8).to(dtype)
                wanted = rms_norm.forward(x, weight, 1e-6, 0, None)
                meta = torch.empty_strided(shape, x.stride(), dtype=dtype, device="meta")
                got = given(meta, weight.to("meta"), 1e-6, 0)
                case = f"x of {list(shape)}, {layout}, {dtype}"
                yield Claim(
                    isinstance(got, tuple) and len(got) == len(wanted),
                    f"{case}: wanted is a tuple of {len(wanted)} tensors",
                )
                for name, ours, real in zip(("y", "rstd"), got, wanted, strict=True):
                    for what in ("shape", "dtype", "stride"):
                        mine, its = (getattr(t, what) for t in (ours, real))
                        mine, its = (v() if what == "stride" else v for v in (mine, its))
                        yield Claim(
                            mine == its, f"{case}: {what} of {name} is {mine}, and the op's {its}"
                        )
                    yield Claim(ours.device.type == "meta", f"{case}: {name} is not where x is")


@answer
def squared_relu(given):
    """A new op: right in every type and layout, twice differentiable, and compiled whole."""
    for dtype in TYPES:
        x = noise(7, 33).to(dtype)
        for case, part in {"packed": x, "every other column": x[:, ::2]}.items():
            truth, own = (torch.relu(each).square() for each in (part.double(), part))
            yield Near(given(part), truth, own, f"{dtype}, {case}")
    special = noise(5).new_tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0])
    y, truth = given(special), torch.relu(special).square()
    yield Claim(
        torch.equal(y.nan_to_num(-1), truth.nan_to_num(-1)),
        f"of {special.tolist()} it makes {y.tolist()}, wanted {truth.tolist()}",
    )
    leaf = noise(3, 5, dtype=torch.float64).requires_grad_()
    yield Claim(gradcheck(given, leaf, raise_exception=False), "the gradient is wrong")
    yield Claim(
        gradgradcheck(given, leaf, raise_exception=False), "the gradient's own gradient is wrong"
    )
    torch.compiler.reset()
    compiled = torch.compile(given, fullgraph=True, backend="aot_eager")
    strided = leaf.detach()[:, ::2].requires_grad_()
    y = compiled(strided)
    (dx,) = torch.autograd.grad(y.sum(), strided)
    yield Claim(
        torch.equal(y, given(strided)) and torch.allclose(dx, 2 * torch.relu(strided)),
        "compiled, it computes something else",
    )


@answer
def fits(given):
    """Whether pip installs a wheel under a CPython: its tags are among those that Python takes."""
    wheels = [
        "cube-0.1.0-cp311-abi3-linux_x86_64.whl",
        "cube-0.1.0-cp312-cp312-linux_x86_64.whl",
        "cube-0.1.0-cp313-abi3-linux_x86_64.whl",
        "my_ops-2.0-cp311-cp311-linux_x86_64.whl",
        "truth-1.0-py3-none-any.whl",
    ]
    for python in [(3, 11), (3, 12), (3, 13), (3, 14)]:
        platforms = ["linux_x86_64"]
        taken = {
            *cpython_tags(python, platforms=platforms),
            *compatible_tags(python, f"cp{python[0]}{python[1]}", platforms),
        }
        for wheel in wheels:
            wanted = bool(parse_wheel_filename(wheel)[-1] & taken)
            got = given(wheel, python)
            yield Claim(
                got is wanted,
                f"{wheel} under Python {'.'.join(map(str, python))}: got {got}, and pip"
                f" {'installs' if wanted else 'refuses'} it",
            )
