"""One example call of an op, and similar calls with other sizes, types and values.

Sizes that must be equal share a letter: sizes that are equal in the example, and that the reference
does not let change one by one.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FOUR_BITS = torch.float4_e2m1fn_x2
_LETTER = re.compile(r"(\d*)([a-z_]\w*)")


@dataclass(frozen=True)
class Call:
    """The arguments of one call, flat.

    names: each leaf's name, from the function's parameters. constant: the floating-point leaves
    that have no gradient, because the op or the reference refuses to record them.
    """

    leaves: list[Any]
    spec: TreeSpec
    names: list[str]
    constant: frozenset[int] = frozenset()

    @classmethod
    def of(cls, function: Callable, args: tuple, kwargs: dict) -> Call:
        leaves, spec = tree_flatten((args, kwargs))
        names = []
        parameters = _parameters(function)
        for i, value in enumerate(args):
            names += _leaf_names(parameters[i] if i < len(parameters) else f"argument {i}", value)
        for name, value in kwargs.items():
            names += _leaf_names(name, value)
        return cls(leaves, spec, names)

    def with_leaves(self, leaves: Sequence[Any]) -> Call:
        return replace(self, leaves=list(leaves))

    def run(self, function: Callable) -> list[Tensor]:
        """The tensors that the function returns for these arguments, in order.

        Four-bit floats are returned as bytes, because PyTorch neither converts nor compares them.
        """
        args, kwargs = tree_unflatten(self.leaves, self.spec)
        found = tree_flatten(function(*args, **kwargs))[0]
        tensors = [it for it in found if isinstance(it, Tensor)]
        in_bytes = [it.dtype == FOUR_BITS for it in tensors]
        return [t.view(torch.uint8) if i else t for t, i in zip(tensors, in_bytes, strict=True)]

    @property
    def tensors(self) -> list[int]:
        """The indices of the leaves that are tensors."""
        return [i for i, it in enumerate(self.leaves) if isinstance(it, Tensor)]

    @property
    def floats(self) -> list[int]:
        return [i for i in self.tensors if self.leaves[i].is_floating_point()]

    @property
    def differentiable(self) -> list[int]:
        return [i for i in self.floats if i not in self.constant]

    def mapped(self, change: Callable[[Tensor], Tensor], only: Sequence[int] | None = None) -> Call:
        """The same call with tensors changed: all, or those at the given indices."""
        places = self.tensors if only is None else only
        return self.with_leaves(
            change(it) if i in places else it for i, it in enumerate(self.leaves)
        )

    def cloned(self) -> Call:
        """The call with copies of its tensors, which keep their layout and any inner overlap."""
        return self.mapped(clone)

    def to(self, dtype: torch.dtype) -> Call:
        return self.mapped(lambda t: t.detach().to(dtype), self.floats)

    def __str__(self) -> str:
        return ", ".join(
            f"{name}={described(it)}" for name, it in zip(self.names, self.leaves, strict=True)
        )


def clone(t: Tensor) -> Tensor:
    """A copy with the same strides and the same offset into its storage."""
    storage = t.untyped_storage().clone()
    new = torch.empty(0, dtype=t.dtype, device=t.device)
    return new.set_(storage, t.storage_offset(), t.shape, t.stride()).requires_grad_(
        t.requires_grad
    )


def described(value: object) -> str:
    """A tensor in short form, as float32[4, 8]; anything else as Python prints it."""
    if not isinstance(value, Tensor):
        return repr(value)
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if not value.is_contiguous():
        text += f" with strides {list(value.stride())}"
    elif value.storage_offset():
        text += f" {value.storage_offset() * value.element_size()} bytes into its storage"
    return text


def _parameters(function: Callable) -> list[str]:
    # From torch.library.custom_op, from torch.ops.my.op, and from torch.ops.my.op.default.
    of = (getattr(function, name, None) for name in ("_opoverload", "default"))
    schema = getattr(next(filter(None, of), function), "_schema", None)
    if schema is not None:
        return [it.name for it in schema.arguments]
    try:
        kinds = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [it.name for it in kinds if it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)]


def _leaf_names(name: str, value: object) -> list[str]:
    count = len(tree_flatten(value)[0])
    return [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]


@dataclass
class Example:
    """What one call shows about an op.

    call: the example itself. letters: for each tensor, the letter and factor of each dimension, or
    None where the dimension is fixed. sizes: those of the example. limits: for integers, the letter
    or number that they stay below; lengths: those that may also equal it. offsets: for integers
    that mark where parts of a whole begin or end, as cu_seqlens does, the letter that they end at.
    takes: the types that the reference accepts.
    """

    call: Call
    reference: Callable
    letters: dict[int, list[tuple[int, str] | None]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    limits: dict[int, str | int] = field(default_factory=dict)
    lengths: set[int] = field(default_factory=set)
    offsets: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, call: Call, reference: Callable, shapes: dict[str, str] | None = None) -> Example:
        """shapes: each tensor's shape in letters, as in reference.py, or in numbers, which are
        fixed; by default the shapes are inferred from the sizes."""
        example = cls(call, reference)
        if shapes is None:
            example._tie_equal_sizes()
            example._find_offsets()
            example._untie()
        else:
            example._read(shapes)
        example._find_limits()
        return example

    # ---- letters

    def _read(self, shapes: dict[str, str]) -> None:
        for i in self.call.tensors:
            t, name = self.call.leaves[i], self.call.names[i]
            text = shapes.get(name, "").partition(",")[0]
            words = text.split()
            parts = [None if it.isdigit() else _LETTER.fullmatch(it) for it in words]
            stay = [n if p else w for p, w, n in zip(parts, words, map(str, t.shape), strict=False)]
            if len(words) != t.dim() or stay != [str(n) for n in t.shape]:
                raise ValueError(f"shapes: {name} has the shape {list(t.shape)}, not {text!r}")
            self.letters[i] = [it and (int(it[1] or 1), it[2]) for it in parts]
            for place, size in zip(self.letters[i], t.shape, strict=True):
                if place is None:
                    continue
                factor, letter = place
                if self.sizes.setdefault(letter, size // factor) * factor != size:
                    raise ValueError(f"shapes: {letter} is {self.sizes[letter]}; {name} has {size}")
            limit = re.search(r"<(=?) (\w+)", shapes.get(name, ""))
            if limit:
                self.limits[i] = int(limit[2]) if limit[2].isdigit() else limit[2]
                self.lengths |= {i} if limit[1] else set()

    def _tie_equal_sizes(self) -> None:
        for i in self.call.tensors:
            self.letters[i] = [(1, f"n{size}") for size in self.call.leaves[i].shape]
            self.sizes |= {f"n{size}": size for size in self.call.leaves[i].shape}

    def _untie(self) -> None:
        """Give a dimension its own letter if the reference lets it change alone, and none if it
        cannot change even with all equal ones. Offsets and what they divide stay tied."""
        for i in self.call.tensors:
            for place, size in enumerate(self.call.leaves[i].shape):
                shared = sum(p[1] == f"n{size}" for ps in self.letters.values() for p in ps if p)
                whole = i in self.offsets or f"n{size}" in self.offsets.values()
                if size < 2 or shared < 2 or whole:
                    continue
                before = self.letters[i][place]
                letter = f"m{i}_{place}"
                self.letters[i][place] = (1, letter)
                self.sizes[letter] = size
                if not self._accepts({letter: size + 1}):
                    self.letters[i][place] = before
                    del self.sizes[letter]
        for letter, size in list(self.sizes.items()):
            used = any(p and p[1] == letter for ps in self.letters.values() for p in ps)
            used = used or letter in self.offsets.values()
            if used and not self._accepts({letter: size + 1}):
                for places in self.letters.values():
                    places[:] = [None if p and p[1] == letter else p for p in places]
                used = False
            if not used:
                del self.sizes[letter]
                self.offsets = {i: it for i, it in self.offsets.items() if it != letter}

    def _find_offsets(self) -> None:
        """Find vectors of integers that never decrease and end with another tensor's size: the
        ends of parts or, with a leading 0, the bounds."""
        for i in self.call.tensors:
            t = self.call.leaves[i]
            if t.is_floating_point() or t.dtype == torch.bool or t.dim() != 1 or len(t) < 2:
                continue
            letter = f"n{int(t[-1])}"
            own = {p[1] for p in self.letters[i] if p}
            rises = int(t[0]) >= 0 and bool((t.diff() >= 0).all())
            if rises and letter in self.sizes and letter not in own:
                self.offsets[i] = letter

    def _accepts(self, sizes: dict[str, int]) -> bool:
        return self.draw(sizes, check=True) is not None

    def _find_limits(self) -> None:
        """Limit integers to the smallest size above all of them: they may be indices into it.

        If the largest equals a size, and no size is one more, they are lengths up to it."""
        for i in self.call.tensors:
            t = self.call.leaves[i]
            if i in self.limits or t.is_floating_point() or t.dtype == torch.bool or not t.numel():
                continue
            largest = int(t.max())
            own = {p[1] for p in self.letters[i] if p}
            above = sorted(
                (size, letter)
                for letter, size in self.sizes.items()
                if size >= max(largest, 1) and letter not in own
            )
            if above and above[0][0] == largest:
                above = [it for it in above if it[0] == largest + 1] or above
                self.lengths |= {i} if above[0][0] == largest else set()
            self.limits[i] = above[0][1] if above and largest >= 0 else largest + 1

    # ---- calls

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first floating-point tensor."""
        floats = self.call.floats
        return self.call.leaves[floats[0]].dtype if floats else torch.float32

    @property
    def mixed(self) -> bool:
        """Whether its floating-point tensors have several types; these then stay as they are."""
        return len({self.call.leaves[i].dtype for i in self.call.floats}) > 1

    def draw(
        self,
        sizes: dict[str, int] | None = None,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        scale: float = 1.0,
        offset: float = 0.0,
        check: bool = False,
    ) -> Call | None:
        """A call with other sizes and random values, about as large as the example's.

        scale, offset: applied to the floats. check: return None if the reference refuses it.
        """
        sizes = self.sizes | (sizes or {})
        dice = torch.Generator().manual_seed(seed)
        leaves = list(self.call.leaves)
        for i in self.call.tensors:
            leaves[i] = self._tensor(i, sizes, dtype, dice, scale, offset)
        call = self.call.with_leaves(leaves)
        if not check:
            return call
        both = (call, self._with_numbers(call, sizes))
        return next((it for it in both if self.takes(it)), None)

    def takes(self, call: Call) -> bool:
        """Whether the reference accepts a call. Possible indices are tried on the CPU first: out of
        range they raise there, but break the process's CUDA context on a GPU."""
        attempts = [call]
        floats = call.floats
        if any(call.leaves[i].is_cuda and i not in floats for i in call.tensors) and self._on_cpu:
            attempts.insert(0, call.mapped(Tensor.cpu))
        try:
            # PyTorch's fused attention on the CPU does not compare the lengths of k and v.
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                for attempt in attempts:
                    attempt.cloned().run(self.reference)
        except Exception:
            return False
        return True

    @cached_property
    def _on_cpu(self) -> bool:
        try:
            with torch.no_grad():
                self.call.mapped(Tensor.cpu).cloned().run(self.reference)
        except Exception:
            return False
        return True

    def _tensor(
        self,
        place: int,
        sizes: dict[str, int],
        dtype: torch.dtype | None,
        dice: torch.Generator,
        scale: float,
        offset: float,
    ) -> Tensor:
        like = self.call.leaves[place]
        shape = [
            size if p is None else p[0] * sizes[p[1]]
            for p, size in zip(self.letters[place], like.shape, strict=True)
        ]
        if like.dtype == torch.bool:
            return torch.randint(2, shape, generator=dice).bool().to(like.device)
        if place in self.offsets:
            end = sizes[self.offsets[place]]
            drawn = torch.randint(end + 1, shape, generator=dice).sort().values
            drawn[-1:] = end
            if int(like[0]) == 0:
                drawn[:1] = 0
            return drawn.to(like.dtype).to(like.device)
        if not like.is_floating_point():
            limit = self.limits.get(place, 1)
            limit = sizes[limit] if isinstance(limit, str) else limit
            limit += place in self.lengths
            low = int(like.min()) if like.numel() and int(like.min()) < 0 else 0
            low = low if low > -2 else 0  # -100 and the like mean "ignore" and are not drawn
            drawn = torch.randint(min(low, 0), max(limit, 1), shape, generator=dice)
            return drawn.to(like.dtype).to(like.device)
        dtype = like.dtype if dtype is None or self.mixed else dtype
        values = like.detach().double()
        values = values[values.isfinite()]
        spread = float(values.std()) if values.numel() > 1 else 1.0
        spread = (
            spread
            if spread > 1e-6
            else max(abs(float(values.mean())), 1.0)
            if values.numel()
            else 1.0
        )
        middle = float(values.mean()) if values.numel() else 0.0
        noise = torch.randn(shape, dtype=torch.float64, generator=dice)
        size, shift = torch.rand(2, dtype=torch.float64, generator=dice).tolist()
        drawn = middle + spread * ((0.5 + size) * noise + (2 * shift - 1))
        if values.numel() and bool((values >= 0).all()):
            drawn = drawn.abs()
            if bool((values <= 1).all()):
                drawn = drawn % 1.0
        drawn = drawn * scale + offset
        if dtype.itemsize == 1:  # larger numbers of these types become NaN
            drawn = drawn.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        return drawn.to(dtype).to(like.device)

    def _with_numbers(self, call: Call, sizes: dict[str, int]) -> Call:
        """Replace each integer argument that equals one of the example's sizes by the new size."""
        new = {self.sizes[letter]: size for letter, size in sizes.items() if letter in self.sizes}
        return call.with_leaves(
            new.get(it, it) if type(it) is int and it > 1 else it for it in call.leaves
        )

    def within(self, call: Call) -> Call:
        """Clamp integers that index a tensor, or mark where its parts end, to its size."""
        sizes: dict[str, int] = {}
        for i, places in self.letters.items():
            for place, size in zip(places, call.leaves[i].shape, strict=True):
                if place is not None:
                    factor, letter = place
                    sizes[letter] = min(size // factor, sizes.get(letter, size))
        leaves = list(call.leaves)
        for i, letter in self.offsets.items():
            leaves[i] = leaves[i].clamp(max=sizes[letter])
            leaves[i][-1:] = sizes[letter]
        for i, limit in self.limits.items():
            if limit in sizes and i not in self.offsets:
                leaves[i] = leaves[i].clamp(max=sizes[limit] - (i not in self.lengths))
        return call.with_leaves(leaves)

    def elements(self, sizes: dict[str, int]) -> int:
        """The number of elements of all tensors together."""
        sizes = self.sizes | sizes
        return sum(
            math.prod(
                size if p is None else p[0] * sizes[p[1]]
                for p, size in zip(self.letters[i], self.call.leaves[i].shape, strict=True)
            )
            for i in self.call.tensors
        )
