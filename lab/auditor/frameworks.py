"""Traps of PyTorch: schemas, fake tensors, torch.compile, autocast, threads, copies, devices."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import pickle
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lab.auditor import cases
from lab.auditor.example import Call
from lab.auditor.judging import (
    NoGradient,
    alike,
    computable,
    largest_of,
    named,
    with_gradients,
)
from lab.auditor.subject import Found, NotRun, Refused, Subject

PYTORCHS = ("aten", "prim", "prims", "profiler", "debugprims", "c10d", "inductor")


class _Ops(TorchDispatchMode):
    """Records each call of an op that is not PyTorch's own, with copies of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[torch._ops.OpOverload, list, dict]] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace not in PYTORCHS:
            taken = [it.detach().clone() if isinstance(it, Tensor) else it for it in args]
            self.noted.append((op, taken, dict(kwargs or {})))
        return op(*args, **(kwargs or {}))


def _call(subject: Subject, dtype: torch.dtype | None = None, seed: int = 91) -> Call:
    return subject.small(8, dtype, seed) or subject.example.call


def _ops(subject: Subject) -> list[tuple[torch._ops.OpOverload, list, dict]]:
    dtype = torch.float64 if torch.float64 in subject.dtypes else None
    call = _call(subject, dtype)
    with _Ops() as ops, subject.speaking(call):
        if subject.has_gradient:
            with_gradients(subject.function, call.cloned(), subject.arriving(call))
        call.cloned().run(subject.function)
    ops.noted = [it for it in ops.noted if it[0].namespace not in PYTORCHS]
    if not ops.noted:
        raise NotRun("it calls no op of torch.library's: PyTorch sees a plain function")
    unique = {it[0]: it for it in reversed(ops.noted)}
    return list(unique.values())


def _has_ops(subject: Subject) -> bool:
    """Whether it calls an op other than PyTorch's own, whose fakes PyTorch is responsible for."""
    try:
        return bool(_ops(subject))
    except (NotRun, Found, Refused):
        return False


def opcheck(subject: Subject) -> str:
    """torch.library.opcheck of each op called: schema, autograd, fake tensors, dynamic shapes."""
    ops = _ops(subject)
    for number, (op, args, kwargs) in enumerate(ops):
        leads = subject.has_gradient and number == len(ops) - 1
        args = [
            it.requires_grad_()
            if leads and isinstance(it, Tensor) and it.is_floating_point()
            else it
            for it in args
        ]
        try:
            with contextlib.redirect_stdout(io.StringIO()), _quiet():
                _opchecked(op, tuple(args), kwargs)
        except Exception as error:
            said = " ".join(str(error).split())
            raise Found(f"opcheck of {op}: {said[:300]}", _call(subject)) from None
    return ", ".join(sorted(str(op) for op, _, _ in ops))


def _opchecked(op: object, args: tuple, kwargs: dict) -> None:
    """opcheck, without its schema test for one-byte floats, which it cannot compare."""
    try:
        torch.library.opcheck(op, args, kwargs)
    except Exception as error:
        if "test_schema" not in str(error) or "not implemented for 'Float" not in str(error):
            raise
        others = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(op, args, kwargs, test_utils=others)


@contextlib.contextmanager
def _quiet():
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def fake(subject: Subject) -> str:
    """Fake tensors must agree with the results in shape, type and strides."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    call, sizes = _call(subject), {it: 5 + n for n, it in enumerate(subject.example.sizes)}
    other = subject.example.draw(sizes, None, subject.seed, check=True) or call
    for changed in (call, other, call.mapped(cases.transposed)):
        with subject.speaking(changed), torch.no_grad():
            real = changed.cloned().run(subject.function)
        with FakeTensorMode() as mode, torch.no_grad(), _quiet():
            try:
                given = changed.mapped(mode.from_tensor)
                faked = given.run(subject.function)
            except Exception as error:
                return f"refused: {str(error).partition(chr(10))[0][:120]}"
        for number, (a, b) in enumerate(zip(real, faked, strict=True)):
            for what in ("shape", "dtype", "stride"):
                mine, theirs = (getattr(t, what) for t in (a, b))
                mine, theirs = (it() if callable(it) else it for it in (mine, theirs))
                if mine != theirs and _has_ops(subject):
                    raise Found(
                        f"output {number} has {what} {mine}; its fake has {theirs}", changed
                    )
    return ""


def compiled(subject: Subject) -> str:
    """torch.compile with fullgraph and dynamic shapes: the same results, or a refusal."""
    torch.compiler.reset()
    function = torch.compile(subject.function, fullgraph=True, dynamic=True, backend="aot_eager")
    try:
        for seed, size in ((92, 8), (93, 5)):
            small = {letter: min(s, size) for letter, s in subject.example.sizes.items()}
            call = subject.example.draw(small, None, subject.seed + seed, check=True)
            if call is None:
                continue
            grads = subject.arriving(call) if subject.has_gradient else []
            with _quiet():
                try:
                    if grads:
                        got = with_gradients(function, call.cloned(), grads)
                    else:
                        with torch.no_grad():
                            outputs = call.cloned().run(function)
                        got = named(outputs)
                except Exception as error:
                    said = " ".join(str(error).split())
                    return f"refused: {said[:120]}"
            for it in subject.judgements(call, got, grads):
                if it.wrong:
                    raise Found(f"compiled, {it}", call)
    finally:
        torch.compiler.reset()
    return ""


def autocast(subject: Subject) -> str:
    """Inside torch.autocast, also with one input of a narrower type, as after a matrix product."""
    if not subject.example.call.floats:
        raise NotRun("it takes no floats")
    kind = torch.device(subject.example.call.leaves[subject.example.call.floats[0]].device).type
    call = _call(subject, torch.float32)
    low = torch.bfloat16 if torch.bfloat16 in subject.dtypes else torch.float16
    mixed = [call.mapped(lambda t: t.to(low), [i]) for i in call.floats]
    refusal = ""
    for given in (call, *mixed) if len(call.floats) > 1 else (call,):
        try:
            with torch.autocast(kind, low), subject.speaking(given), torch.no_grad():
                got = given.cloned().run(subject.function)
        except Refused as error:
            refusal = str(error)
            continue
        with torch.no_grad():
            want = given.mapped(lambda t: t.double(), given.floats).run(subject.reference)
        for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            if not mine.is_floating_point():
                continue
            mine, theirs = computable(mine), computable(theirs)
            slack = 0.1 * (1 + largest_of(theirs))
            if mine.shape != theirs.shape or not torch.allclose(
                mine.double(), theirs.double(), rtol=0.1, atol=slack, equal_nan=True
            ):
                raise Found(f"output {number} is wrong inside torch.autocast", given)
    return f"refused: {refusal}" if refusal else ""


def wrong_inputs(subject: Subject) -> str:
    """What the reference refuses, one tensor of another size or type, must be refused, too."""
    call = _call(subject)
    for place in call.tensors:
        t = call.leaves[place]
        others = [t[..., :-1]] if t.dim() and t.shape[-1] > 1 else []
        others += [t[:-1]] if t.dim() > 1 and t.shape[0] > 1 else []
        for other in others:
            given = call.with_leaves(
                other.contiguous() if i == place else it for i, it in enumerate(call.leaves)
            )
            given = subject.example.within(given)
            if not subject.example.takes(given):
                _must_refuse(subject, given, f"{call.names[place]} of shape {list(other.shape)}")
    return ""


def _must_refuse(subject: Subject, call: Call, what: str) -> None:
    try:
        subject.results(call)
    except Refused:
        return
    except Found as found:
        found.note = True
        raise
    raise Found(f"{what} is taken, which the reference refuses", call, note=True)


def settings(subject: Subject) -> str:
    """A call leaves PyTorch's settings and random number generators as they were."""
    with settings_back():
        call = _call(subject)
    with settings_back():
        meant = _changed_by(subject.reference, subject, call)
    with settings_back(), subject.speaking(call):
        changed = _changed_by(subject.function, subject, call)
    if left := sorted(changed - meant):
        raise Found(f"a call changes {', '.join(left)}", call)
    return ""


# How each setting is read and set, by name.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch.is_grad_enabled()": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.get_default_dtype()": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.get_num_threads()": (torch.get_num_threads, torch.set_num_threads),
    "torch.get_deterministic_debug_mode()": (
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    "torch.get_float32_matmul_precision()": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "torch.is_autocast_enabled()": (
        partial(torch.is_autocast_enabled, "cpu"),
        partial(torch.set_autocast_enabled, "cpu"),
    ),
    "torch.backends.cudnn.benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        partial(setattr, torch.backends.cudnn, "benchmark"),
    ),
    "the random numbers that follow": (torch.random.get_rng_state, torch.random.set_rng_state),
}
# Settings of a GPU that the process has used. The device comes first: a stream belongs to one.
_GPU_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch.cuda.current_device()": (torch.cuda.current_device, torch.cuda.set_device),
    "torch.cuda.current_stream()": (torch.cuda.current_stream, torch.cuda.set_stream),
    "the GPU's random numbers that follow": (torch.cuda.get_rng_state, torch.cuda.set_rng_state),
}


def _settings() -> dict[str, Any]:
    """The current value of each setting."""
    used = _SETTINGS | (_GPU_SETTINGS if torch.cuda.is_initialized() else {})
    return {name: now() for name, (now, _) in used.items()}


def _changed_since(before: dict[str, Any]) -> set[str]:
    now = _settings()
    return {name for name, value in before.items() if not _same(now[name], value)}


def _same(a: object, b: object) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def _changed_by(function: object, subject: Subject, call: Call) -> set[str]:
    """The settings that a call or its backward pass leaves changed."""
    before = _settings()
    call.cloned().run(function)
    found = _changed_since(before)
    torch.set_grad_enabled(True)
    if subject.has_gradient:
        grads = subject.arriving(call)
        before = _settings()
        with contextlib.suppress(NoGradient):
            with_gradients(function, call.cloned(), grads)
        found |= _changed_since(before)
    return found


@contextlib.contextmanager
def settings_back():
    """Restores every setting that an op may change."""
    before = _settings()
    try:
        yield
    finally:
        changed = _changed_since(before)
        for name in filter(changed.__contains__, before):
            (_SETTINGS | _GPU_SETTINGS)[name][1](before[name])


def modes(subject: Subject) -> str:
    """inference_mode and no_grad, and inputs made in inference mode."""
    call = _call(subject)
    want = subject.results(call)
    try:
        with torch.inference_mode(), subject.speaking(call):
            got = call.cloned().run(subject.function)
    except Refused as error:
        raise Found(f"refused in torch.inference_mode alone: {error}", call) from None
    for mine, theirs in zip(got, want.values(), strict=True):
        if not alike(mine, theirs):
            raise Found("another result in torch.inference_mode", call)
    return ""


def copies(subject: Subject) -> str:
    """A deep copy, and a pickled copy where possible, give the same results."""
    call = _call(subject)
    want = subject.results(call)
    ways = {"a deep copy": lambda f: copy.deepcopy(f)}
    ways["what is unpickled"] = lambda f: pickle.loads(pickle.dumps(f))
    said = []
    for what, way in ways.items():
        try:
            other = way(subject.function)
        except Exception as error:
            said.append(f"{what}: {type(error).__name__}")
            continue
        with subject.speaking(call), torch.no_grad():
            got = call.cloned().run(other)
        for mine, theirs in zip(got, want.values(), strict=True):
            if not alike(mine, theirs):
                raise Found(f"{what} gives another result", call)
    return f"refused: {', '.join(said)}" if said else ""


def threads(subject: Subject) -> str:
    """Four threads with inputs of their own do not disturb each other."""
    calls = [_call(subject, seed=95 + n) for n in range(4)]
    want = [subject.results(call) for call in calls]
    wrong: list[str] = []

    def work(turn: int) -> None:
        for _ in range(10):
            try:
                got = subject.results(calls[turn])
            except Exception as error:
                wrong.append(str(error))
                return
            for name, mine in got.items():
                if not alike(mine, want[turn][name]):
                    wrong.append(f"{name} is another one beside calls of other threads")

    workers = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for it in workers:
        it.start()
    for it in workers:
        it.join()
    if wrong:
        raise Found(wrong[0], calls[0])
    return ""
