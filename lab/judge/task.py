"""The task of a submission: a function of PyTorch ops, with its shapes in letters.

The ops of reference.py are tasks. Another one is a file that uses the same decorator:

    from reference import op
    import torch

    @op(x="rows cols", weight="cols")
    def scale(x, weight):
        return x * weight

A submission is CUDA C++ that defines, for the first options of the task,

    extern "C" cudaError_t launch(const float* x, const float* weight, float* y,
                                  int64_t rows, int64_t cols, cudaStream_t stream)

That is a pointer for each input, in order, one for each output, a size for each letter, and the
stream. The element type of the first pointer is the type in which the task is judged.

Or it defines a PyTorch op that writes to its last arguments; this is judged in float32. It may take
torch::stable::Tensor, with STABLE_TORCH_LIBRARY, or at::Tensor:

    TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
        m.def("launch(Tensor x, Tensor weight, Tensor(a!) y) -> ()");
    }
"""

from __future__ import annotations

import importlib.util
import math
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import reference
from lab.auditor import cases

LARGEST = 1 << 16  # elements of a case on the simulator


@dataclass(frozen=True)
class Task:
    """A reference and how to draw its inputs. path: its file; None for an op of reference.py."""

    op: reference.Op
    path: Path | None = None

    @classmethod
    def of(cls, name: str) -> Task:
        """The task for the name of an op of reference.py, or for the path of a file with one @op.

        Raises ValueError if there is no such task.
        """
        if name in reference.OPS:
            return cls(reference.OPS[name])
        path = Path(name)
        if path.suffix != ".py" or not path.is_file():
            known = ", ".join(reference.OPS)
            raise ValueError(f"task: {name!r} is no file of Python and none of {known}")
        before = dict(reference.OPS)
        spec = importlib.util.spec_from_file_location(f"task_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise ValueError(f"task: {name} raises {type(error).__name__}: {error}") from error
        else:
            new = [it for n, it in reference.OPS.items() if before.get(n) is not it]
        finally:
            reference.OPS.clear()
            reference.OPS.update(before)
        if len(new) != 1:
            raise ValueError(f"task: {name} has {len(new)} functions under @op; wanted is one")
        task = cls(new[0], path.absolute())
        try:
            found = task.results(task.draw({}, torch.float32, 0))
        except Exception as error:
            raise ValueError(
                f"task: {new[0].name} fails on what is drawn for it: {error}"
            ) from error
        if not found or not all(isinstance(it, Tensor) for it in found):
            said = ", ".join(type(it).__name__ for it in found) or "nothing"
            raise ValueError(f"task: {new[0].name} returns {said}; wanted is a tensor, or several")
        return task

    @property
    def options(self) -> dict:
        return self.op.options[0]

    @property
    def letters(self) -> list[str]:
        """The letters in the order of the signature: rows, cols, then the op's own."""
        used = {
            letter.lstrip("0123456789")
            for name, shape in self.op.shapes.items()
            if name not in self.options
            for letter in shape.split()
        }
        return [it for it in ("rows", "cols", *self.op.sizes) if it in used]

    def signature(self, type_: str = "float") -> str:
        """The function that a submission defines, in C++."""
        outputs = len(self.results(self.draw({}, torch.float32, 0)))
        words = [
            f"const {'int64_t' if name in self.op.limits else type_}* {name}"
            for name in self.op.shapes
            if name not in self.options
        ]
        words += [f"{type_}* y{i if outputs > 1 else ''}" for i in range(outputs)]
        words += [f"int64_t {it}" for it in self.letters]
        return f'extern "C" cudaError_t launch({", ".join(words)}, cudaStream_t stream)'

    def schema(self) -> str:
        """The schema of an op that a submission defines, in PyTorch's notation."""
        count = len(self.results(self.draw({}, torch.float32, 0)))
        words = [f"Tensor {name}" for name in self.op.shapes if name not in self.options]
        words += [f"Tensor({chr(97 + i)}!) y{i if count > 1 else ''}" for i in range(count)]
        return f"launch({', '.join(words)}) -> ()"

    def draw(
        self, sizes: dict[str, int], dtype: torch.dtype, seed: int, device: str = "cpu"
    ) -> dict[str, Tensor]:
        known = self.known(sizes)
        rows, cols = known.pop("rows"), known.pop("cols")
        given = {"device": device, "seed": seed, "without": self.options}
        return self.op.inputs(rows, cols, dtype, **given, **known)

    def known(self, sizes: dict[str, int]) -> dict[str, int]:
        """The size of every letter."""
        return {"rows": 5, "cols": 40} | self.op.sizes | sizes

    def shape(self, name: str, sizes: dict[str, int]) -> list[int]:
        """The shape of an input, given the size of every letter."""
        return [reference.size_of(it, sizes) for it in self.op.shapes[name].split()]

    def sizes_of(self, sizes: dict[str, int]) -> list[int]:
        known = self.known(sizes)
        return [known[it] for it in self.letters]

    def results(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        found = self.op.function(**inputs, **self.options)
        return list(found) if isinstance(found, tuple | list) else [found]

    def cases(self, seed: int, count: int) -> list[tuple[dict[str, int], int]]:
        """Sizes, and a seed for the values: each random shape twice in a row, with other values."""
        dice = random.Random(f"{self.op.name} {seed}")
        found: list[tuple[dict[str, int], int]] = []
        fixed = [{"rows": 1, "cols": 1}, {"rows": 3, "cols": 1025}, {"rows": 70, "cols": 33}]
        while len(found) < count:
            sizes = fixed.pop() if fixed else self._sizes(dice)
            if self.elements(sizes) > LARGEST:
                continue
            found += [(sizes, dice.randrange(1 << 40)) for _ in range(2)]
        return found

    def _sizes(self, dice: random.Random) -> dict[str, int]:
        """A size for every letter: awkward ones, and as often arbitrary ones."""
        pools = {"cols": cases.SIZES + cases.LARGE_SIZES}
        found = {}
        for letter in self.letters:
            pool = pools.get(letter, cases.SIZES)
            any_size = round(math.exp(dice.uniform(0, math.log(pool[-1]))))
            found[letter] = dice.choice((dice.choice(pool), any_size))
        return found

    def elements(self, sizes: dict[str, int]) -> int:
        known = self.known(sizes)
        return sum(math.prod(self.shape(name, known)) for name in self.op.shapes)
