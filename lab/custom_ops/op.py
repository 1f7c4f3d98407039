"""`@lab.op`: a Python function that calls kernels becomes a PyTorch op with a gradient.

    def softplus_grad(grad, x):
        dx = torch.empty_like(x)
        mine.backward[(x.numel() + 255) // 256, 256](grad, x, dx, x.numel())
        return dx

    @lab.op(backward=softplus_grad)
    def softplus(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        mine.forward[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y

`lab.op` describes the options.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor

import jitload
from lab.custom_ops.shapes import Outputs

NAMESPACE = "kernel_playground_ops"
_TYPES = "Tensor, Tensor | None, int, float, bool, str or torch.dtype"

_library = torch.library.Library(NAMESPACE, "DEF")
_numbers: dict[str, Iterator[int]] = {}


def op(
    function: Callable | None = None,
    /,
    *,
    backward: Callable | None = None,
    out_like: str | tuple[str, ...] | Callable | None = None,
    autocast: str | None = None,
    mutates: tuple[str, ...] = (),
) -> Any:
    """Decorator: make a PyTorch op of a function that calls kernels.

        @lab.op(backward=softplus_grad)
        def softplus(x: Tensor) -> Tensor: ...

    The op is called like the function, works under torch.compile(fullgraph=True), passes
    torch.library.opcheck(softplus.op, (x,)), and follows edits of the kernels. Its schema comes
    from the annotations: Tensor, Tensor | None, int, float, bool, str or torch.dtype for each
    parameter; Tensor or tuple[Tensor, Tensor] for the result. Non-contiguous tensors are passed to
    the function, and to its backward, as contiguous copies.

    Args:
        backward: called as `backward(grad, x)`: first the gradient of each result, then, by name,
            those op arguments that it needs, and `out` (`out_0`, `out_1` for several) for a result.
            `needs_input_grad` is a tuple with one entry for each tensor argument of the op: whether
            its gradient is wanted. It returns a gradient or None for each of them. If it consists
            of PyTorch ops, or is such an op itself, it can be differentiated again.
        out_like: the shapes and types of the results, for torch.compile: for each result the name
            of an argument with that shape and type, or a function of the arguments that makes such
            tensors, as `lambda x: x.new_empty(x.shape[0])`. By default calls show them.
        autocast: how torch.autocast casts the tensors: "promote" to the widest of their types,
            "lower_precision_fp" to autocast's type; by default not at all.
        mutates: names of the arguments that it writes to; such an op has no gradient.

    Raises:
        TypeError, ValueError: the annotations or backward's parameter names are invalid.
    """
    if function is None:
        return functools.partial(
            op, backward=backward, out_like=out_like, autocast=autocast, mutates=mutates
        )
    return Op(function, backward, out_like, autocast, mutates)


class Op:
    """The result of `@lab.op`.

    Attributes:
        op: the PyTorch op, as torch.library.opcheck takes it.
        function: the function itself.
    """

    def __init__(
        self,
        function: Callable,
        backward: Callable | None,
        out_like: str | tuple[str, ...] | Callable | None,
        autocast: str | None,
        mutates: str | tuple[str, ...],
    ):
        mutates = (mutates,) if isinstance(mutates, str) else tuple(mutates)
        schema = _schema(function, mutates)
        if not (backward is None or callable(backward)):
            raise TypeError(
                f"{function.__name__}: backward is {backward!r}; wanted is a function, which is"
                " defined before the op"
            )
        if autocast not in (None, *jitload.AUTOCAST_POLICIES):
            wanted = " or ".join(map(repr, jitload.AUTOCAST_POLICIES))
            raise ValueError(f"{function.__name__}: autocast is {autocast!r}; wanted is {wanted}")
        if backward and (mutates or schema.endswith("()")):
            why = f"writes to {mutates[0]}" if mutates else "returns nothing"
            raise ValueError(f"{function.__name__} {why}: it can have no gradient")
        self._made_of = function, backward, out_like, autocast, mutates
        self.function = function
        functools.update_wrapper(self, function)
        self._parameters = inspect.signature(function).parameters
        self.op = _defined(function.__name__, schema)
        kinds = list(map(_type, self.op._schema.arguments))
        self._tensors = [i for i, kind in enumerate(kinds) if kind in ("Tensor", "Tensor?")]
        if not any("Tensor" in kind for kind in kinds):
            raise TypeError(
                f"{self.__name__} takes no tensor: an op of PyTorch's takes at least one"
            )
        self._mutated = [i for i, name in enumerate(self._parameters) if name in mutates]
        count = len(self.op._schema.returns)
        self._outputs = Outputs(self.__name__, list(self._parameters), count, out_like, self._run)
        _implement(self.op, self._run, self._outputs.fake)
        self._call = self.op
        torch._functorch.config.enable_autograd_cache = False  # it identifies ops only by name
        if count and not mutates:
            formulas = _Gradient(self, backward).formulas if backward else self._no_gradient
            self._call = jitload.register_gradient(self.op, self.__name__, formulas, _plainly)
        if autocast:
            jitload.register_autocast(self.op, self._call, autocast)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<lab.op {self.__name__}{str(self.op._schema).partition(self.op._opname)[2]}>"

    def __reduce__(self) -> tuple:
        return Op, self._made_of

    def _run(self, *args: Any) -> Any:
        """Run the function on contiguous tensors; results are contiguous and share no memory."""
        given = [
            a.contiguous() if isinstance(a, Tensor) and i not in self._mutated else a
            for i, a in enumerate(args)
        ]
        kept = [i for i, a in enumerate(given) if isinstance(a, Tensor) and i not in self._mutated]
        versions = [_version(given[i]) for i in kept]
        with torch.no_grad():
            results = self.function(*given)
        names = list(self._parameters)
        for i, version in zip(kept, versions, strict=True):
            if _version(given[i]) != version:
                raise RuntimeError(
                    f"{self.__name__} has written to {names[i]}: say so, as in"
                    f' @lab.op(mutates=("{names[i]}",)), or write to a tensor of its own; a kernel'
                    f" that only reads {names[i]} declares it const"
                )
        results = _own(self._outputs.checked(results), given)
        self._outputs.learn(args, results)
        return results[0] if len(results) == 1 else tuple(results) or None

    def _no_gradient(self) -> tuple[Callable, None]:
        def backward(ctx: Any, *grads: Any) -> None:
            raise RuntimeError(
                f"{self.__name__} has no gradient: give it one, as in @lab.op(backward="
                f"{self.__name__}_grad) with def {self.__name__}_grad("
                f"{', '.join(['grad', *self._parameters])}): return ..."
            )

        return backward, None


class _Gradient:
    """The backward function of an op, registered as an op itself.

    So torch.compile does not trace into it. It returns a tensor for every tensor argument of the
    op, an empty one if no gradient is wanted.
    """

    def __init__(self, of: Op, backward: Callable):
        self.of, self.function = of, backward
        self.name = getattr(backward, "__name__", type(backward).__name__)
        arguments, returns = of.op._schema.arguments, of.op._schema.returns
        if any(_type(argument) == "Tensor[]" for argument in arguments):
            raise TypeError(f"{of.__name__} takes a list of tensors: it can have no gradient")
        names = list(inspect.signature(backward).parameters)
        outs = ["out"] if len(returns) == 1 else [f"out_{i}" for i in range(len(returns))]
        known = [*of._parameters, *outs, "needs_input_grad"]
        self._taken = names[len(returns) :]
        unknown = [name for name in self._taken if name not in known]
        if len(names) < len(returns) or unknown:
            wrong = f"takes {', '.join(unknown)}" if unknown else "takes too little"
            grads = ["grad"] if len(returns) == 1 else [f"grad_{i}" for i in range(len(returns))]
            raise TypeError(
                f"{self.name} {wrong}; wanted is {self.name}({', '.join(grads)}, ...), and behind"
                f" the gradients any of: {', '.join(known)}"
            )
        self._inputs = [i for i, name in enumerate(of._parameters) if name in self._taken]
        self._outs = [i for i, name in enumerate(outs) if name in self._taken]
        self._names = list(of._parameters), outs
        schema = [f"Tensor grad_{i}" for i in range(len(returns))]
        schema += [f"{_type(arguments[i])} input_{i}" for i in self._inputs]
        schema += [f"Tensor out_{i}" for i in self._outs]
        schema += [f"SymInt[] shape_{i}" for i in of._tensors]
        gives = ", ".join(["Tensor"] * len(of._tensors))
        self.op = _defined(
            f"{of.op._opname}_backward", f"({', '.join(schema)}, bool[] needs) -> ({gives})"
        )
        _implement(self.op, self._run, self._fake)
        jitload.register_gradient(self.op, self.name, self._second, _plainly)

    def formulas(self) -> tuple[Callable, Callable]:
        return self._backward, self._setup_context

    def _setup_context(self, ctx: Any, inputs: tuple, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        _save(ctx, [*(inputs[i] for i in self._inputs), *(outputs[i] for i in self._outs)])
        ctx.shapes = [
            inputs[i].shape if isinstance(inputs[i], Tensor) else () for i in self.of._tensors
        ]

    def _backward(self, ctx: Any, *grads: Tensor) -> tuple:
        kept, needs = _saved(ctx), [ctx.needs_input_grad[i] for i in self.of._tensors]
        results = self.op(*grads, *kept, *map(list, ctx.shapes), needs)
        results = iter([results] if len(needs) == 1 else results)
        wanted: list[Tensor | None] = [None] * len(self.of._parameters)
        for i, result, need in zip(self.of._tensors, results, needs, strict=True):
            wanted[i] = result if need else None
        return tuple(wanted)

    def _split(self, args: tuple) -> tuple[list, list[list[int]], list[bool]]:
        """Split the op's arguments: gradients and saved tensors, shapes, gradients wanted."""
        *front, needs = args
        cut = len(front) - len(self.of._tensors)
        return front[:cut], front[cut:], needs

    def _called(self, kept: list, shapes: list, needs: list[bool]) -> list[Tensor | None]:
        """Call the function on contiguous tensors: a gradient or None for each tensor argument."""
        kept = [it.contiguous() if isinstance(it, Tensor) else it for it in kept]
        count = len(self.of.op._schema.returns)
        grads, rest = kept[:count], iter(kept[count:])
        names, outs = self._names
        by_name = {names[i]: next(rest) for i in self._inputs}
        by_name |= {outs[i]: next(rest) for i in self._outs}
        by_name["needs_input_grad"] = tuple(needs)
        results = self.function(*grads, *(by_name[name] for name in self._taken))
        results = list(results) if isinstance(results, tuple | list) else [results]
        tensors = [names[i] for i in self.of._tensors]
        if len(results) == len(names):  # as in PyTorch, one for each argument
            results = [results[i] for i in self.of._tensors]
        if len(results) != len(tensors):
            raise RuntimeError(
                f"{self.name} returned {_count(len(results), 'gradient')}; wanted is one, or None,"
                f" for each tensor of {self.of.__name__}: {', '.join(tensors)}"
            )
        for name, result, shape in zip(tensors, results, shapes, strict=True):
            if result is not None and not isinstance(result, Tensor):
                raise TypeError(
                    f"{self.name} returned a {type(result).__name__} for {name}; wanted is a tensor"
                    " or None"
                )
            if result is not None and list(result.shape) != list(shape):
                raise RuntimeError(
                    f"{self.name} returned a gradient of shape {tuple(result.shape)} for {name},"
                    f" whose shape is {tuple(shape)}"
                )
        return results

    def _run(self, *args: Any) -> Any:
        kept, shapes, needs = self._split(args)
        with torch.no_grad():
            results = self._called(kept, shapes, needs)
        results = [
            kept[0].new_zeros(shape if need else 0)
            if result is None or not need
            else result.to(kept[0].dtype)
            for result, shape, need in zip(results, shapes, needs, strict=True)
        ]
        results = _own(results, kept)
        return results[0] if len(results) == 1 else tuple(results)

    def _fake(self, *args: Any) -> Any:
        kept, shapes, needs = self._split(args)
        results = [
            kept[0].new_empty(shape if need else 0)  # autograd casts it to the argument's type
            for shape, need in zip(shapes, needs, strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def _second(self) -> tuple[Callable, Callable]:
        """The second derivative: autograd's, of the PyTorch ops that the function calls."""

        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            kept, ctx.shapes, ctx.needs = self._split(inputs)
            _save(ctx, kept)

        def backward(ctx: Any, *grads: Tensor) -> tuple:
            kept, again = _saved(ctx), torch.is_grad_enabled()
            sources = [
                i for i, it in enumerate(kept) if isinstance(it, Tensor) and ctx.needs_input_grad[i]
            ]
            with (
                torch.enable_grad(),
                jitload.recording_wanted(
                    f"{self.of.__name__} has no second derivative: {self.name} calls a kernel. Make"
                    f" an op of it, too, with a gradient: @lab.op(backward=...) above {self.name}"
                ),
            ):
                for i in sources:  # separate nodes that do not depend on each other
                    it = kept[i]
                    kept[i] = it.view_as(it) if it.requires_grad else it.detach().requires_grad_()
                results = self._called(kept, ctx.shapes, ctx.needs)
                pairs = [
                    (result, grad)
                    for result, grad, need in zip(results, grads, ctx.needs, strict=True)
                    if need and result is not None and result.requires_grad
                ]
                found = (None,) * len(sources)
                if pairs:
                    found = torch.autograd.grad(
                        [result for result, _ in pairs],
                        [kept[i] for i in sources],
                        [grad for _, grad in pairs],
                        create_graph=again,
                        allow_unused=True,
                    )
            wanted = dict(zip(sources, found, strict=True))
            return tuple(wanted.get(i) for i in range(len(self.op._schema.arguments)))

        return backward, setup_context


def _save(ctx: Any, kept: list) -> None:
    ctx.save_for_backward(*(it if isinstance(it, Tensor) else None for it in kept))
    ctx.others = [None if isinstance(it, Tensor) else it for it in kept]


def _saved(ctx: Any) -> list:
    pairs = zip(ctx.saved_tensors, ctx.others, strict=True)
    return [other if tensor is None else tensor for tensor, other in pairs]


def _plainly(formula: Callable, *arguments: Any) -> Any:
    """Call a formula as register_gradient does: without a build in force, on the newest kernels."""
    return formula(*arguments)


def _schema(function: Callable, mutates: tuple[str, ...]) -> str:
    """The schema from the annotations.

    Raises TypeError that says what to write.
    """
    name = getattr(function, "__name__", repr(function))
    if not (callable(function) and name.isidentifier()):
        raise TypeError(
            f"lab.op wants a function with a name, and got {name}; its gradient is given by name,"
            " as in @lab.op(backward=softplus_grad)"
        )
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"{name}: {parameter} cannot be given by its place alone: an op takes no *, ** or /"
            )
        if parameter.annotation is parameter.empty:
            raise TypeError(
                f"{name}: say the type of {parameter.name}, as in {parameter.name}: Tensor; wanted"
                f" is {_TYPES}"
            )
    if signature.return_annotation is signature.empty:
        raise TypeError(
            f"{name}: say what it returns, as in def {name}(...) -> Tensor; wanted is Tensor, or"
            " tuple[Tensor, Tensor] for two, or None for an op that writes to its arguments"
        )
    if unknown := [it for it in mutates if it not in signature.parameters]:
        raise ValueError(f"{name} has no argument {unknown[0]!r} that it could write to")
    try:
        schema = torch.library.infer_schema(function, mutates_args=mutates)
    except (ValueError, NameError) as error:
        said = str(error).removeprefix("infer_schema(func): ").partition(" Got func")[0]
        said = said.partition(". The valid types")[0]
        raise TypeError(f"{name}: {said} (lab.op takes {_TYPES})") from None
    return schema


def _defined(name: str, schema: str) -> torch._ops.OpOverload:
    """A new op; if an earlier run of the cell took the name, under a different one."""
    count = next(_numbers.setdefault(name, itertools.count(1)))
    name = name if count == 1 else f"{name}_{count}"
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _implement(op: torch._ops.OpOverload, run: Callable, fake: Callable) -> None:
    def on_all(function: Callable) -> Callable:
        def call(*args: Any) -> Any:
            if len(args) < len(op._schema.arguments):  # the dispatcher omits default arguments
                args, _ = torch._library.utils.fill_defaults(op._schema, args, {})
            return function(*args)

        return call

    for key in ("CPU", "CUDA"):
        _library.impl(op._opname, on_all(run), key)
    torch.library.register_fake(f"{NAMESPACE}::{op._opname}", on_all(fake), lib=_library)


def _type(argument: torch._C.Argument) -> str:
    """The type of an argument in schema notation."""
    said = str(argument.real_type)
    return re.sub(r"^Optional\[(.*)\]$", r"\1?", re.sub(r"List\[(.*)\]", r"\1[]", said))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _own(results: list[Tensor], given: Iterable[Any]) -> list[Tensor]:
    """Make results contiguous, without memory shared among them or with the given tensors."""
    taken = {_memory(it) for it in given if isinstance(it, Tensor)}
    found = []
    for result in results:
        result = result.detach().contiguous()
        found.append(result.clone() if _memory(result) in taken else result)
        taken.add(_memory(found[-1]))
    return found


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
