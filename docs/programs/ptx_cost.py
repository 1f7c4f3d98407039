"""What products by tensor cores cost without a GPU, for docs/ptx.md.

    python -m docs.programs.ptx_cost

Rungs of the book's ladders are built for the simulator, which is there already, and called on all
cores: the best of several times counts. A rung's error is that against float64.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

import jitload
from docs.programs.page import Part, cores, duration, table

PART = Part("ptx.md", "docs.programs.ptx_cost")
FOLDER = jitload.KERNELS.parent / "notebooks" / "ladders"
HEAD = ["rung", "shape", "build", "call", "error", "PyTorch's"]
CALLS = 5


class Case(NamedTuple):
    """A function of a ladder.

    call: of the function and the inputs; returns what is to be compared.
    inputs: shapes, of bfloat16, for n. truth: the same in PyTorch, of any type.
    """

    ladder: str
    name: str
    shown: str
    call: Callable[..., torch.Tensor]
    inputs: Callable[[int], list[tuple[int, ...]]]
    truth: Callable[..., torch.Tensor]

    def drawn(self, n: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(n)
        drawn = (torch.randn(shape, generator=generator) for shape in self.inputs(n))
        return [x.bfloat16() for x in drawn]


def product(
    function: Callable,
    a: torch.Tensor,
    b: torch.Tensor,
    dtype: torch.dtype = torch.bfloat16,
    more: tuple[int, ...] = (),
) -> torch.Tensor:
    m, k, n = *a.shape, len(b)
    c = torch.full((m, n), torch.nan, device=a.device, dtype=dtype)
    function(a, b, c, m, n, k, *more)
    return c


def attention(function: Callable, *inputs: torch.Tensor) -> torch.Tensor:
    heads, tokens, size = inputs[0].shape
    y = torch.full_like(inputs[0], torch.nan)
    function(*inputs, y, heads, tokens, size**-0.5)
    return y


CASES = [
    *(
        Case(ladder, name, "{n} x {n} x {n}", call, lambda n: [(n, n)] * 2, lambda a, b: a @ b.T)
        for ladder, name, call in (
            ("15_tensor_cores", "stages", partial(product, dtype=torch.float32)),
            ("16_hopper", "specialized", product),
            ("16_hopper", "multicast", partial(product, more=(16,))),
        )
    ),
    Case(
        "20_attention_forward",
        "attention_forward",
        "4 heads, {n} tokens, size 128",
        attention,
        lambda n: [(4, n, 128)] * 3,
        torch.nn.functional.scaled_dot_product_attention,
    ),
]


def load(case: Case, folder: Path = FOLDER) -> Callable:
    """The rung's function."""
    library = jitload.load(folder / f"{case.ladder}.cu", target="cpu")
    return getattr(library, case.name)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the whole: norm of the difference over norm."""
    return float((got.double() - truth).norm() / truth.norm())


def row(case: Case, folder: Path, n: int = 1024) -> list[str]:
    """Of a copy of the file in `folder`, which no cache knows."""
    inputs = case.drawn(n)
    truth = case.truth(*(x.double() for x in inputs))
    case.call(load(case), *case.drawn(256))  # builds the simulator's part, too
    text = (FOLDER / f"{case.ladder}.cu").read_text()
    (folder / f"{case.ladder}.cu").write_text(f"{text}// {time.time_ns()}\n")
    start = time.perf_counter()
    function = load(case, folder)
    built = time.perf_counter() - start
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        got = case.call(function, *inputs)
        times.append(time.perf_counter() - start)
    errors = (error(got, truth), error(case.truth(*inputs), truth))
    shown = (duration(built), duration(min(times)), *(f"{each:.1e}" for each in errors))
    return [f"{case.ladder}, {case.name}", case.shown.format(n=n), *shown]


def main() -> None:
    """Write the table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(case, Path(folder)) for case in CASES]
    PART.write(f"{cores()}, bfloat16.\n\n{table(HEAD, rows, 'llr')}")


if __name__ == "__main__":
    main()
