"""Judges of chapter 12: bindings of square."""

import math

import torch
from torch.autograd import gradgradcheck

import jitload
import lab
from lab.course.exercise import Claim, Near, answer, binding

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Where kernels run. It is cut there too: a slice that is moved is packed on its way."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=generator).to(jitload.device())


@binding("square", lines=42)
def checks(attempt):
    """Right for every layout, and an error that names the argument for what it cannot take."""
    for dtype in TYPES:
        x = noise(6, 8).to(dtype)
        yield Near(attempt.forward(x), x.double() ** 2, x * x, f"{dtype}")
    x, grad = noise(2, 6, 8)
    layouts = {"[:, ::2]": lambda t: t[:, ::2], ".T": torch.t, "[1:, 3:]": lambda t: t[1:, 3:]}
    for case, part_of in layouts.items():
        part, g = part_of(x), part_of(grad)
        yield Near(attempt.forward(part), part.double() ** 2, part * part, f"forward of x{case}")
        truth = 2 * g.double() * part
        yield Near(attempt.backward(g, part), truth, 2 * g * part, f"backward of x{case}")
    ones = torch.ones((), device=x.device).expand(6, 8)  # the gradient of a sum
    y = attempt.backward(ones, x)
    yield Near(y, 2 * x.double(), 2 * x, "backward, grad of stride 0")

    wrong = {
        "forward of int32 x": ("x", attempt.forward, (x.int(),)),
        "forward of complex x": ("x", attempt.forward, (x.to(torch.complex64),)),
        "backward, grad of another type": ("grad", attempt.backward, (grad.double(), x)),
        "backward, grad of another shape": ("grad", attempt.backward, (noise(12, 8)[:5], x)),
        "backward, grad of as many elements": ("grad", attempt.backward, (grad.view(8, 6), x)),
    }
    for case, (name, function, tensors) in wrong.items():
        try:
            function(*tensors)
        except RuntimeError as error:
            said = str(error)
        else:
            said = ""
        yield Claim(bool(said), f"{case}: nothing was raised")
        yield Claim(f"{name} " in said, f"{case}: the error does not name {name}: {said}")
    elsewhere = x.to("meta") if x.is_cpu else x.cpu()
    trial = lab.trial(attempt.forward, elsewhere)  # in a process of its own: it may end that
    case = f"forward of x on {elsewhere.device}, built for {x.device.type}"
    yield Claim(trial.outcome == "raised", f"{case}: {trial.report}")
    yield Claim("x " in trial.report, f"{case}: the error does not name x: {trial.report}")


@answer
def scaled(given):
    """A Function for factor * x * x, of which every derivative is right."""
    x = noise(3, 4, dtype=torch.float64).requires_grad_()
    arriving = noise(3, 4, dtype=torch.float64, seed=1)
    for factor in (1.0, -2.5):
        y = given.apply(x, factor)
        close = torch.allclose(y, factor * x * x)
        yield Claim(close, f"apply(x, {factor}) is not {factor} * x * x")
        (dx,) = torch.autograd.grad(y, x, arriving)
        off = (dx - 2 * factor * arriving * x).abs().max().item()
        yield Claim(off < 1e-12, f"factor {factor}: the gradient is off by {off:.3g}")
        second = gradgradcheck(given.apply, (x, factor), raise_exception=False)
        yield Claim(second, f"factor {factor}: the gradient's own gradient is wrong")


@answer
def elements(given):
    """From how many elements on a kernel takes longer than the call that launches it."""
    for seconds, bytes_each, rate in [(5e-6, 8, 4e12), (2.6e-5, 4, 1e12), (1e-6, 12, 2e11)]:
        wanted, got = seconds * rate / bytes_each, given(seconds, bytes_each, rate)
        yield Claim(
            got is not ... and math.isclose(got, wanted, rel_tol=0.01),
            f"a call of {1e6 * seconds:g} µs, {bytes_each} bytes an element, {rate:.2g} bytes a"
            f" second: got {got}. How many bytes does the kernel move while the host makes a call?",
        )


@answer
def break_unchecked(given):
    """A tensor that is squared wrongly as if it were packed, and whose sum of squares is right."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and not given.is_sparse,
        "wanted is a dense float32 tensor",
    )
    yield Claim(2 <= given.numel() <= 64, f"{given.numel()} elements; wanted are 2 to 64")
    yield Claim(bool(given.isfinite().all()), "all must be finite")
    held = given.untyped_storage().nbytes() // 4 - given.storage_offset()
    yield Claim(
        held >= given.numel(),
        f"its memory holds {held} elements from the first on, and {given.numel()} would be read: no"
        " wrong result but an access outside of it",
    )
    first = given.as_strided((given.numel(),), (1,))  # what a pointer and a number say
    y, truth = first.square().view(given.shape), given.square()
    yield Claim(
        torch.equal(y.double().sum(), truth.double().sum()),
        f"the sum of the squares is {y.double().sum():g}, wanted {truth.double().sum():g}: a test"
        " of the sum would find out",
    )
    yield Claim(not torch.equal(y, truth), "every element is squared rightly")
