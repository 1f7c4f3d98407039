"""Traps of autograd: gradcheck, which inputs need a gradient, second derivatives, torch.func."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.autograd import gradcheck

from lab.auditor.example import Call
from lab.auditor.judging import (
    NoGradient,
    alike,
    computable,
    is_recorded,
    largest_of,
    with_gradients,
)
from lab.auditor.subject import Found, NotRun, Refused, Subject


def _need(subject: Subject) -> None:
    if not subject.has_gradient:
        raise NotRun("it has no gradient")


def _small(subject: Subject, dtype: torch.dtype | None = None, seed: int = 71) -> Call:
    if call := subject.small(4, dtype, seed):
        return call
    raise NotRun("the reference refuses random values")


def there(subject: Subject) -> str:
    """The op has a gradient wherever the reference has one."""
    if not subject.reference_has_gradient:
        raise NotRun("the reference has no gradient")
    call = _small(subject)
    try:
        subject.with_gradients(call, subject.arriving(call))
    except NoGradient:
        raise Found(
            "its results lead to no gradient: training stops there without a word", call, note=True
        ) from None
    except Refused as error:
        return f"refused: {error}"
    names = ", ".join(call.names[i] for i in sorted(call.constant))
    return f"not of {names}, which refuses one" if names else ""


def right(subject: Subject) -> str:
    """Gradients against the reference's, in every type."""
    _need(subject)
    for dtype in subject.dtypes:
        call = _small(subject, dtype)
        subject.must_be_right(call, True)
    return ""


def checked(subject: Subject) -> str:
    """PyTorch's gradcheck, in float64."""
    _need(subject)
    if torch.float64 not in subject.dtypes:
        raise NotRun("it does not take float64; gradients are held against the reference's")
    call = _small(subject, torch.float64)
    try:
        gradcheck(
            _of_floats(subject, call), _leaves(call), fast_mode=True, check_undefined_grad=True
        )
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        # If gradcheck refuses the reference, as at a kink of relu, it says nothing about the op.
        try:
            gradcheck(_of_floats(subject, call, subject.reference), _leaves(call), fast_mode=True)
        except Exception:
            return "gradcheck refuses the reference, too"
        try:
            subject.with_gradients(call, subject.arriving(call))
        except Refused as refusal:  # its backward pass supports only other types
            return f"refused: {refusal}"
        raise Found(f"gradcheck: {said[:250]}", call) from None
    return ""


def _leaves(call: Call) -> tuple[Tensor, ...]:
    return tuple(call.leaves[i].detach().clone().requires_grad_() for i in call.differentiable)


def _of_floats(subject: Subject, call: Call, function: object = None):
    """The op as a function of its differentiable tensors, returning its floating-point results."""
    function = function or subject.function

    def of(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(call.differentiable, tensors, strict=True))
        leaves = [given.get(i, it) for i, it in enumerate(call.leaves)]
        outputs = call.with_leaves(leaves).run(function)
        return tuple(y for y in outputs if y.is_floating_point())

    return of


def needs(subject: Subject) -> str:
    """Each input alone requires a gradient, and gets the same one."""
    _need(subject)
    call = _small(subject)
    grads = subject.arriving(call)
    whole = subject.with_gradients(call, grads)
    for place in call.differentiable:
        name = f"gradient of {call.names[place]}"
        with subject.speaking(call):
            try:
                alone = with_gradients(subject.function, call.cloned(), grads, [place])
            except NoGradient:
                if not whole[name].any():
                    continue
                raise Found(f"{call.names[place]} alone gets no gradient", call) from None
        if not torch.allclose(alone[name], whole[name], rtol=1e-2, atol=1e-3, equal_nan=True):
            raise Found(f"the {name} is another one where only it is asked for", call)
    return ""


def twice(subject: Subject) -> str:
    """A second backward pass over a retained graph gives the same gradients."""
    _need(subject)
    call = _small(subject)
    leaves = _leaves(call)
    with subject.speaking(call):
        outputs = [y for y in _of_floats(subject, call)(*leaves) if y.requires_grad]
        ends = [torch.ones_like(y) for y in outputs]
        passes = [
            torch.autograd.grad(outputs, leaves, ends, retain_graph=True, allow_unused=True)
            for _ in range(2)
        ]
    for name, first, second in zip(
        (call.names[i] for i in call.differentiable), *passes, strict=True
    ):
        if first is not None and not alike(first, second):
            raise Found(f"a second backward pass gives another gradient of {name}", call)
    return ""


def double(subject: Subject) -> str:
    """The second derivative: right, or refused; never silently zero."""
    _need(subject)
    dtype = torch.float64 if torch.float64 in subject.dtypes else None
    call = _small(subject, dtype)
    dice = torch.Generator().manual_seed(subject.seed)
    try:
        want = _second(subject.reference, subject, call, dice.clone_state())
    except (RuntimeError, NotImplementedError):
        want = None
    if want is None:
        raise NotRun("the reference has no second derivative")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = _second(subject.function, subject, call, dice.clone_state())
        except (RuntimeError, NotImplementedError) as error:
            return f"refused: {str(error).partition(chr(10))[0][:120]}"
    if got is None:
        raise Found(
            "the gradient leads to no second derivative: a penalty on gradients would train nothing"
            if any(it is not None and bool(it.any()) for it in want)
            else "",
            call,
            note=True,
        )
    for place, mine, theirs in zip(call.differentiable, got, want, strict=True):
        theirs = torch.zeros_like(call.leaves[place]) if theirs is None else theirs
        mine = torch.zeros_like(theirs) if mine is None else mine
        rough = 1e-5 if mine.dtype == torch.float64 else 3e-2
        if not torch.allclose(
            mine, theirs.to(mine.dtype), rtol=rough, atol=rough * (1 + largest_of(theirs))
        ):
            raise Found(f"the second derivative by {call.names[place]} is wrong", call)
    return ""


def _second(function: object, subject: Subject, call: Call, dice: torch.Generator):
    leaves = _leaves(call)
    outputs = [y for y in _of_floats(subject, call, function)(*leaves) if y.requires_grad]
    end = sum(y.double().square().sum() for y in outputs)
    grads = torch.autograd.grad(end, leaves, create_graph=True, allow_unused=True)
    known = [g for g in grads if g is not None and is_recorded(g)]
    if any(g.grad_fn is not None and g.grad_fn.name().endswith("Error") for g in known):
        raise RuntimeError("marked with @once_differentiable")  # not connected to any input
    if not known:
        return None
    weights = [torch.randn(g.shape, dtype=torch.float64, generator=dice).to(g) for g in known]
    end = sum((g * w).sum() for g, w in zip(known, weights, strict=True))
    return torch.autograd.grad(end, leaves, allow_unused=True)


def transforms(subject: Subject) -> str:
    """torch.func.grad and vjp: right, or refused."""
    _need(subject)
    call = _small(subject)
    leaves = tuple(it.detach() for it in _leaves(call))
    places = tuple(range(len(leaves)))

    def end(function: object):
        of = _of_floats(subject, call, function)
        return lambda *tensors: sum(y.double().square().sum() for y in of(*tensors))

    try:
        want = torch.func.grad(end(subject.reference), places)(*leaves)
    except Exception:
        raise NotRun("torch.func.grad refuses the reference") from None
    try:
        got = torch.func.grad(end(subject.function), places)(*leaves)
    except Exception as error:
        return f"refused: {str(error).partition(chr(10))[0][:120]}"
    _compare(call, got, want, "torch.func.grad")
    return ""


def batched(subject: Subject) -> str:
    """torch.func.vmap over the first tensor: right, or refused."""
    call = _small(subject)
    if not call.floats:
        raise NotRun("it takes no floats")
    place = call.floats[0]
    several = [_small(subject, seed=81 + n).leaves[place] for n in range(3)]

    def of(function: object):
        def one(t: Tensor) -> tuple[Tensor, ...]:
            leaves = [t if i == place else it for i, it in enumerate(call.leaves)]
            return tuple(call.with_leaves(leaves).run(function))

        return one

    want = [of(subject.reference)(t) for t in several]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = torch.func.vmap(of(subject.function))(torch.stack(several))
        except Exception as error:
            return f"refused: {str(error).partition(chr(10))[0][:120]}"
    _compare(call, got, [torch.stack(it) for it in zip(*want, strict=True)], "vmap")
    return ""


def forward_mode(subject: Subject) -> str:
    """torch.func.jvp: right, or refused; never a tangent of 0."""
    _need(subject)
    call = _small(subject)
    leaves = tuple(it.detach() for it in _leaves(call))
    try:
        _, want = torch.func.jvp(_of_floats(subject, call, subject.reference), leaves, leaves)
    except Exception:
        raise NotRun("the reference has no forward-mode derivative") from None
    try:
        _, got = torch.func.jvp(_of_floats(subject, call), leaves, leaves)
    except Exception as error:
        return f"refused: {str(error).partition(chr(10))[0][:120]}"
    _compare(call, got, want, "torch.func.jvp")
    return ""


def _compare(call: Call, got, want, what: str) -> None:
    for mine, theirs in zip(got, want, strict=True):
        rough = 3e-2 if mine.dtype in (torch.float16, torch.bfloat16) else 1e-3
        rough = torch.finfo(mine.dtype).eps if computable(mine) is not mine else rough
        mine, theirs = computable(mine), computable(theirs)
        slack = rough * (1 + largest_of(theirs))
        if mine.shape != theirs.shape or not torch.allclose(
            mine, theirs.to(mine.dtype), rtol=rough, atol=slack, equal_nan=True
        ):
            raise Found(f"{what} gives something else than for the reference", call)
