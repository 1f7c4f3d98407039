"""The tensors that a function uses without receiving them as arguments: a module's parameters,
closure variables, default arguments, globals that its code names, and tensors that these keep for
backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import jitload


def without_partial(function: Callable, args: tuple, kwargs: dict) -> tuple[Callable, tuple, dict]:
    """The same call, with the arguments that functools.partial holds moved into the argument list.

    Raises TypeError if a call's result was passed in place of the function.
    """
    if not callable(function):
        raise TypeError(
            f"function: a {type(function).__name__}, which cannot be called; wanted are a function"
            " and its arguments, as in (kernel.forward, x), not what kernel.forward(x) returns"
        )
    while isinstance(function, partial):
        args, kwargs = function.args + args, function.keywords | kwargs
        function = function.func
    return function, args, kwargs


def captured(function: Callable) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor that a function captures, with its name.

    Functions of the same module (or notebook) are searched, too; those of other modules are not.
    """
    known: set[int] = set()
    waiting = [function]
    while waiting:
        user = waiting.pop()
        for name, value in _variables(user):
            for path, leaf in _members(name, value):
                if isinstance(leaf, staticmethod):  # in a torch.autograd.Function
                    leaf = leaf.__func__
                if id(leaf) in known:
                    continue
                known.add(id(leaf))
                if isinstance(leaf, torch.Tensor):
                    yield path, leaf
                    yield from ((f"kept by {path}", kept) for kept in _kept(leaf))
                elif isinstance(leaf, FunctionType | MethodType) and module_of(leaf) == module_of(
                    user
                ):
                    waiting.append(leaf)


def module_of(function: Any) -> str | None:
    """The module that defines it; for `apply`, the module of its torch.autograd.Function."""
    owner = getattr(function, "__self__", None)
    return getattr(owner if isinstance(owner, type) else function, "__module__", None)


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a method's object, and the variables that a function's code names."""
    if isinstance(function, MethodType):
        owner, function = function.__self__, function.__func__
    elif not isinstance(function, FunctionType):
        owner = function
        code_of = "forward" if isinstance(owner, torch.nn.Module) else "__call__"
        function = getattr(type(owner), code_of, None)
    else:
        owner = None
    if isinstance(owner, torch.nn.Module):
        yield "", owner
    if isinstance(owner, torch.Tensor):
        yield "self", owner
    yield from getattr(owner, "__dict__", {}).items()
    if not isinstance(function, FunctionType):
        return  # a compiled function
    defaults = function.__defaults__ or ()
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if cell != _UNASSIGNED:
            yield name, cell.cell_contents
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


_UNASSIGNED = CellType()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _members(name: str, value: Any, depth: int = 4) -> Iterator[tuple[str, Any]]:
    """The value itself, the tensors of a module, or the members of a list, tuple, dictionary or
    data class.
    """
    if isinstance(value, torch.nn.Module):
        for path, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield (f"{name}.{path}" if name else path), tensor
    else:
        for leaf in tree_flatten(value)[0]:
            if depth and is_dataclass(leaf) and not isinstance(leaf, type):
                for field in fields(leaf):
                    member = getattr(leaf, field.name, None)
                    yield from _members(f"{name}.{field.name}", member, depth - 1)
            else:
                yield name, leaf


def _kept(result: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors saved for backward by our ops, and by others in Python, that led to a result."""
    yield from jitload.saved_for(result)
    known, waiting = {None}, [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in known:
            continue
        known.add(node)
        waiting += [node for node, _ in node.next_functions]
        try:
            yield from (it for it in getattr(node, "saved_tensors", ()) if it is not None)
        except RuntimeError:
            continue  # freed by an earlier backward pass
