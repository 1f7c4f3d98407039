"""Gradients that are calls of other ops, written as text.

A line names inputs of an op and the call that computes their gradients:

    x, weight, bias = backward(grad, x, weight, mean, rstd, version)

`backward` is a function of the same kernel. In place of the call there may be one argument, or
`expand(ARGUMENT)`: a view in the input's shape, which begins with the argument's. Arguments:

    NAME        an input of the op, or an output that has this name in its schema
    result      the only output
    grad        the gradient of the first output; grad_NAME that of the output with this name
    needs_NAME  whether the gradient of this input is wanted
    None, or an int

A result may be the gradient of several inputs, as in `x = residual = ...` and in
`(x, residual), weight = ...`. Several lines that name the same input are alternatives: the first
one whose tensors were all given is used. The gradient of an unused output is None if the function
accepts None, else zeros. An output whose gradient no line uses is not differentiable. What no
wanted gradient needs is neither saved nor called, except a function that writes to an argument.

A function that returns nothing computes gradients in the arguments that it writes to. These are
outputs of the op, like dx and dw in `x, w = scale_(dx, dw, grad)`. It can do so only once: a second
backward pass through the graph, or one that is recorded, uses the next line for these inputs.

`Derivative` does this with the interface of torch.library.register_autograd, and needs only
PyTorch: a package that was made by `python -m jitload ship` has a copy of this file.
"""

from __future__ import annotations

import ast
import functools
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Derivative"]


@dataclass(frozen=True)
class _Argument:
    # "i": an input, "o": an output, "g": an output's gradient, "n": whether an input's gradient is
    # needed, "c": an int, which is `index`, "-": None
    kind: str
    index: int
    optional: bool  # the function takes None
    name: str


@dataclass(frozen=True)
class _Call:
    """One formula: the call, and for each result the inputs whose gradient it is."""

    op: torch._ops.OpOverload | None  # None: the result is the only argument
    arguments: tuple[_Argument, ...]
    gradients_of: tuple[tuple[int, ...], ...]
    expands: bool = False  # the result to the shape of the input

    @functools.cached_property
    def targets(self) -> frozenset[int]:
        return frozenset(itertools.chain(*self.gradients_of))

    @functools.cached_property
    def written(self) -> tuple[int, ...]:
        """The positions of the arguments that the function writes to."""
        return _written(self.op) if self.op else ()

    @functools.cached_property
    def writes_to(self) -> str:
        """Their names."""
        return ", ".join(self.arguments[i].name for i in self.written)

    @functools.cached_property
    def is_once(self) -> bool:
        """Whether the results are arguments that it writes to, so that it can run only once."""
        return self.op is not None and not self.op._schema.returns

    def __str__(self) -> str:
        """The form that derivatives.cpp reads."""
        function = self.op._schema.name if self.op else "expand" if self.expands else "-"
        arguments = " ".join(f"{a.kind}{a.index}" for a in self.arguments)
        results = " ".join(",".join(map(str, inputs)) for inputs in self.gradients_of)
        return f"{function} {arguments} > {results}\n"


class Derivative:
    """The gradient of one op of one build.

    Raises:
        ValueError: a formula cannot be read, or names something that does not exist.
    """

    def __init__(self, op: torch._ops.OpOverload, label: str, text: str):
        self.op, self.label = op, label
        try:
            lines = ast.parse(textwrap.dedent(text)).body
        except SyntaxError as error:
            raise ValueError(f"the formulas of {label} cannot be read: {error}") from None
        self.calls = [_Reader(op, label, line).call() for line in lines]

    @functools.cached_property
    def differentiable(self) -> set[int]:
        """The outputs that have a gradient."""
        every = itertools.chain(*(call.arguments for call in self.calls))
        return {argument.index for argument in every if argument.kind == "g"}

    # ---- the functions that torch.library.register_autograd takes

    def setup_context(self, ctx: Any, inputs: tuple, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)  # filling zeros would take launches
        ctx.mark_non_differentiable(
            *(output for i, output in enumerate(outputs) if i not in self.differentiable)
        )
        ctx.like = [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.calls = list(self._needed(ctx.needs_input_grad, inputs))
        ctx.shapes = {
            i: inputs[i].shape for call in ctx.calls if call.expands for i in call.targets
        }
        given = {"i": inputs, "o": outputs}
        used = {
            (argument.kind, argument.index): given[argument.kind][argument.index]
            for call in ctx.calls
            for argument in call.arguments
            if argument.kind in given
        }
        ctx.is_spent = False  # whether calls that are possible once have been made
        once = {
            ("o", call.arguments[i].index)
            for call in ctx.calls
            if call.is_once
            for i in call.written
        }  # not kept after that
        if torch._C._autograd._top_saved_tensors_default_hooks(False):
            once = set()  # the owner of these hooks, such as a checkpoint, decides
        ctx.others = {
            key: value
            for key, value in used.items()
            if key in once or not isinstance(value, Tensor)
        }
        ctx.names = [key for key in used if key not in ctx.others]
        ctx.save_for_backward(*(used[key] for key in ctx.names))

    def backward(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        values = ctx.others | dict(zip(ctx.names, ctx.saved_tensors, strict=True))

        def value(argument: _Argument) -> Any:
            if argument.kind == "-":
                return None
            if argument.kind == "c":
                return argument.index
            if argument.kind == "n":
                return ctx.needs_input_grad[argument.index]
            if argument.kind != "g":
                return values[argument.kind, argument.index]
            grad = grads[argument.index]
            if grad is None and not argument.optional:
                shape, dtype, device = ctx.like[argument.index]
                return torch.zeros(shape, dtype=dtype, device=device)
            return grad

        gradients: list[Tensor | None] = [None] * len(self.op._schema.arguments)
        for call in self._in_force(ctx):
            if call.writes_to and torch.is_grad_enabled():
                raise RuntimeError(
                    f"{self.label} cannot write to {call.writes_to} where its backward pass is"
                    " recorded (create_graph=True, torch.func): call it without"
                )
            results = self._results(ctx, call, [value(it) for it in call.arguments])
            for result, inputs in zip(results, call.gradients_of, strict=True):
                for i in filter(ctx.needs_input_grad.__getitem__, inputs):
                    gradients[i] = _expanded(result, ctx.shapes[i]) if call.expands else result
        return tuple(gradients)

    def _in_force(self, ctx: Any) -> Iterator[_Call]:
        """The calls of a backward pass: among alternatives, the first that is possible now."""
        spent = ctx.is_spent or torch.is_grad_enabled()
        done: set[int] = set()
        for call in ctx.calls:
            if not (done & call.targets or (call.is_once and spent)):
                done |= call.targets
                yield call

    def _results(self, ctx: Any, call: _Call, arguments: list[Any]) -> tuple:
        if call.op is None:
            return tuple(arguments)
        if not call.is_once:
            return _tuple(call.op(*arguments))
        if any(isinstance(it, Tensor) and type(it) is not Tensor for it in arguments):
            # A graph is being traced: its outputs must not be changed.
            for i in call.written:
                arguments[i] = arguments[i].clone()
        else:
            ctx.is_spent = True
            for i in call.written:
                ctx.others.pop(("o", call.arguments[i].index), None)
        call.op(*arguments)
        return tuple(arguments[i] for i in call.written)

    def _needed(self, needs: Sequence[bool], inputs: Sequence[Any]) -> Iterator[_Call]:
        done: set[int] = set()
        for call in self.calls:
            tensors = (a for a in call.arguments if a.kind == "i" and not a.optional)
            if done & call.targets or any(inputs[a.index] is None for a in tensors):
                continue
            if not call.is_once:  # another line may take its place
                done |= call.targets
            writes = call.writes_to and not call.is_once
            if writes or any(needs[i] for i in call.targets):
                yield call


class _Reader:
    """Reads one formula."""

    def __init__(self, op: torch._ops.OpOverload, label: str, line: ast.stmt):
        self.op, self.label, self.line = op, label, line
        schema = op._schema
        self.inputs = {argument.name: i for i, argument in enumerate(schema.arguments)}
        self.outputs = {output.name: i for i, output in enumerate(schema.returns) if output.name}
        if len(schema.returns) == 1:
            self.outputs["result"] = 0

    def call(self) -> _Call:
        match self.line:
            case ast.Assign(targets, ast.Call(ast.Name("expand"), [ast.Name(name)], [])):
                return self._alone(targets, name, expands=True)
            case ast.Assign(targets, ast.Call(ast.Name(function), arguments, [])):
                names = [ast.unparse(it) for it in arguments]
            case ast.Assign(targets, ast.Name(name)):
                return self._alone(targets, name)
            case _:
                raise self._error("is not of the form NAMES = FUNCTION(NAMES) or NAMES = NAME")
        results = list(map(self._targets, zip(*map(_elements, targets), strict=True)))
        op = self._op(function)
        schema = op._schema
        given = len(schema.returns) or len(_written(op))
        if given != len(results):
            raise self._error(f"has {len(results)} results; {function} has {given}")
        if len(schema.arguments) != len(names):
            wanted = ", ".join(it.name for it in schema.arguments)
            raise self._error(f"gives {len(names)} arguments; {function} takes {wanted}")
        arguments = tuple(map(self._argument, names, schema.arguments))
        call = _Call(op, arguments, tuple(results))
        if call.is_once and any(arguments[i].kind != "o" for i in call.written):
            raise self._error(f"gives {call.writes_to}; wanted are outputs of the op")
        return call

    def _alone(self, targets: list[ast.expr], name: str, expands: bool = False) -> _Call:
        optional = _Argument(*self._found(name), True, name)
        return _Call(None, (optional,), (self._targets(targets),), expands)

    def _targets(self, nodes: Iterable[ast.expr]) -> tuple[int, ...]:
        """The inputs of which one result is the gradient."""
        return tuple(self._input(ast.unparse(it)) for node in nodes for it in _elements(node))

    def _op(self, name: str) -> torch._ops.OpOverload:
        packet = getattr(getattr(torch.ops, self.op.namespace), name, None)
        if packet is None:
            raise self._error(f"calls {name}, which the kernel does not have")
        return packet.default

    def _input(self, name: str) -> int:
        if name not in self.inputs:
            raise self._error(
                f"gives a gradient to {name}; the inputs are {', '.join(self.inputs)}"
            )
        return self.inputs[name]

    def _argument(self, name: str, taken: torch._C.Argument) -> _Argument:
        return _Argument(*self._found(name), isinstance(taken.type, torch._C.OptionalType), name)

    def _found(self, name: str) -> tuple[str, int]:
        """The kind and the index of the argument with this name."""
        if name == "None":
            return "-", 0
        if name.isdecimal():
            return "c", int(name)
        if name in self.inputs:
            return "i", self.inputs[name]
        if name in self.outputs:
            return "o", self.outputs[name]
        if name == "grad":
            return "g", 0
        kind, _, of = name.partition("_")
        if kind == "grad" and of in self.outputs:
            return "g", self.outputs[of]
        if kind == "needs" and of in self.inputs:
            return "n", self.inputs[of]
        known = ", ".join([*self.inputs, *self.outputs])
        raise self._error(f"names {name}, none of {known}, grad, grad_OUTPUT, needs_INPUT")

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{ast.unparse(self.line)!r}, a formula of {self.label}, {what}")


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _expanded(tensor: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """A view of the tensor in this shape, which begins with the tensor's dimensions."""
    if tensor is None:
        return None
    return tensor.reshape([*tensor.shape, *[1] * (len(shape) - tensor.dim())]).expand(shape)


def _written(op: torch._ops.OpOverload) -> tuple[int, ...]:
    """The positions of the arguments that an op writes to."""
    arguments = enumerate(op._schema.arguments)
    return tuple(i for i, it in arguments if it.alias_info and it.alias_info.is_write)


def _tuple(results: Any) -> tuple:
    return results if isinstance(results, tuple) else (results,)
