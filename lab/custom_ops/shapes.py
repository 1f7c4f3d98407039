"""The shapes and types of the results of a function that is not a PyTorch op, which
torch.compile must know before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_map

MOST = 64  # limit on remembered calls

Like = tuple[Sequence[int], torch.dtype]


class Outputs:
    """The results of one op.

    out_like: as for `lab.op`. If None, it is inferred from calls: a result has the shape of an
        argument, or each of its sizes is a size of an argument, an int argument, or 1.
    run: the op itself.
    """

    def __init__(
        self,
        name: str,
        parameters: list[str],
        count: int,
        out_like: str | tuple[str, ...] | Callable | None,
        run: Callable,
    ):
        self.name, self.parameters, self.count, self.run = name, parameters, count, run
        self.out_like = (out_like,) if isinstance(out_like, str) else out_like
        if isinstance(self.out_like, tuple | list):
            if unknown := [it for it in self.out_like if it not in parameters]:
                raise ValueError(
                    f"{name}: out_like names {unknown[0]!r}; there are {', '.join(parameters)}"
                )
            if len(self.out_like) != count:
                raise ValueError(
                    f"{name}: out_like has {len(self.out_like)} names for {count} results"
                )
        self._seen: dict[tuple, list[Like]] = {}  # by the arguments
        self._has_promised = False  # whether compiled code may rely on a guess

    def checked(self, results: Any) -> list[Tensor]:
        """The function's result as a list of tensors."""
        found = list(results) if isinstance(results, tuple | list) else [results]
        found = [] if self.count == 0 and found == [None] else found
        if len(found) != self.count or not all(isinstance(it, Tensor) for it in found):
            got = ", ".join(type(it).__name__ for it in found)
            raise TypeError(
                f"{self.name} returned {got or 'nothing'}; its annotation says"
                f" {', '.join(['Tensor'] * self.count) or 'None'}"
            )
        return found

    def learn(self, args: tuple, results: list[Tensor]) -> None:
        """Remember the results of a call.

        Raises RuntimeError if out_like, or a guess given to compiled code, disagrees.
        """
        key = tuple(map(_given, args))
        made: list[Like] = [(tuple(it.shape), it.dtype) for it in results]
        if self._seen.get(key) == made:
            return
        told = None
        if self.out_like is not None:
            told = self._like(tree_map(_meta, args))
        elif self._has_promised:
            told = self._guessed(args)
        if told is not None and [(tuple(shape), dtype) for shape, dtype in told] != made:
            raise RuntimeError(
                f"{self.name} returned {_said(made)}, and"
                f" {'out_like' if self.out_like is not None else 'after its other calls'} says"
                f" {_said(told)}: {self._remedy()}"
            )
        if len(self._seen) < MOST or key in self._seen:
            self._seen[key] = made

    def fake(self, *args: Any) -> Any:
        """Empty tensors like the results, for torch.library.register_fake."""
        if self.out_like is not None:
            likes = self._like(args)
        else:
            if not self._seen and self.count:
                self._try(args)
            likes = self._guessed(args)
            self._has_promised = True
        first = next(it for it in args if isinstance(it, Tensor))
        results = [first.new_empty(shape, dtype=dtype) for shape, dtype in likes]
        return results[0] if self.count == 1 else tuple(results) or None

    def _like(self, args: tuple) -> list[Like]:
        if callable(self.out_like):
            made = self.out_like(*args)
        else:
            made = tuple(args[self.parameters.index(name)] for name in self.out_like)
        return [(it.shape, it.dtype) for it in self.checked(made)]

    def _try(self, args: tuple) -> None:
        """Call the function on zeros if torch.compile has seen no call yet."""
        with unset_fake_temporarily():
            try:
                self.run(*tree_map(_zeros, args))
            except Exception as error:
                raise RuntimeError(
                    f"{self.name} was compiled before it was called, and a call with zeros raised"
                    f" {type(error).__name__}: {error}. Call it once before, or {self._remedy()}"
                ) from error

    def _guessed(self, args: tuple) -> list[Like]:
        return [(self._shape(args, k), self._dtype(args, k)) for k in range(self.count)]

    def _shape(self, args: tuple, k: int) -> Sequence[int]:
        calls = [(key, made[k][0]) for key, made in self._seen.items()]
        tensors = [i for i, it in enumerate(args) if isinstance(it, Tensor)]
        like = [i for i in tensors if all(_shape_of(key[i]) == shape for key, shape in calls)]
        if like:
            return self._only([tuple(args[i].shape) for i in like])
        if len({len(shape) for _, shape in calls}) != 1:
            raise RuntimeError(f"{self.name}: {self._remedy()}")
        return [self._size(args, d, calls) for d in range(len(calls[0][1]))]

    def _size(self, args: tuple, d: int, calls: list) -> int:
        found = []
        for i, it in enumerate(args):
            if isinstance(it, Tensor):
                ranks = {len(_shape_of(key[i]) or ()) for key, _ in calls}
                if ranks != {it.dim()}:
                    continue
                found += [
                    it.shape[j]
                    for j in range(it.dim())
                    if all(_shape_of(key[i])[j] == shape[d] for key, shape in calls)
                ]
            elif isinstance(it, int | torch.SymInt) and not isinstance(it, bool):
                found += [it] if all(key[i] == shape[d] for key, shape in calls) else []
        if not found and all(shape[d] == 1 for _, shape in calls):
            return 1
        return self._only(found)

    def _only(self, found: list) -> Any:
        """The common value of all that were found."""
        if not found or any(it != found[0] for it in found[1:]):
            raise RuntimeError(
                f"{self.name}: its calls do not show what shape its results have: {self._remedy()}"
            )
        return found[0]

    def _dtype(self, args: tuple, k: int) -> torch.dtype:
        calls = [(key, made[k][1]) for key, made in self._seen.items()]
        for i, it in enumerate(args):
            if isinstance(it, Tensor) and all(
                isinstance(key[i], tuple) and key[i][1] == dtype for key, dtype in calls
            ):
                return it.dtype
        if len({dtype for _, dtype in calls}) == 1:
            return calls[0][1]
        raise RuntimeError(f"{self.name}: its results have several types: {self._remedy()}")

    def _remedy(self) -> str:
        first = self.parameters[0]
        return (
            "say what its results are like, as in @lab.op(out_like="
            f'"{first}") or @lab.op(out_like=lambda {", ".join(self.parameters)}:'
            f" {first}.new_empty({first}.shape[0]))"
        )


def _given(value: Any) -> Any:
    """The properties of an argument that may determine the results' shapes."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    return value if value is None or isinstance(value, int) else type(value)


def _shape_of(key: Any) -> tuple[int, ...] | None:
    return key[0] if isinstance(key, tuple) else None


def _meta(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def _zeros(value: Any) -> Any:
    """A real value in place of one that torch.compile traces."""
    if isinstance(value, torch.SymInt):
        return _hint(value)
    if isinstance(value, FakeTensor) or (isinstance(value, Tensor) and value.is_meta):
        if value.is_meta and not isinstance(value, FakeTensor):
            raise ValueError("a tensor on meta has no elements")
        return torch.zeros([_hint(n) for n in value.shape], dtype=value.dtype, device=value.device)
    return value


def _hint(size: int | torch.SymInt) -> int:
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        if hint is None:
            raise ValueError("a size is not known")
        return int(hint)
    return size


def _said(likes: Sequence[Like]) -> str:
    return ", ".join(f"{dtype} of shape {tuple(shape)}" for shape, dtype in likes)
