"""What products by tensor cores cost without a GPU, for docs/ptx.md.

    python -m docs.programs.ptx_cost

Each kernel of tensor_cores/ is built for the simulator, which is there already, and called on all
cores: the best of several times counts. Its error is that against float64.
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
FOLDER = Path(__file__).with_name("tensor_cores")
HEAD = ["kernel", "shape", "build", "call", "error", "PyTorch's"]
CALLS = 5


class Case(NamedTuple):
    """A file of tensor_cores/ with a function of its name.

    call: of the kernel's function, the inputs and n; returns what is to be compared.
    inputs: shapes, of bfloat16, for n. truth: the same in PyTorch, of any type.
    """

    name: str
    shown: str
    call: Callable[..., torch.Tensor]
    inputs: Callable[[int], list[tuple[int, ...]]]
    truth: Callable[..., torch.Tensor]

    def drawn(self, n: int, device: str = "cpu") -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(n)
        drawn = (torch.randn(shape, generator=generator) for shape in self.inputs(n))
        return [x.bfloat16().to(device) for x in drawn]


def product(
    function: Callable, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    m, k, n = *a.shape, len(b)
    c = torch.full((m, n), torch.nan, device=a.device, dtype=dtype)
    function(a, b, c, m, n, k)
    return c


def attention(function: Callable, *inputs: torch.Tensor) -> torch.Tensor:
    heads, tokens, size = inputs[0].shape
    y = torch.full_like(inputs[0], torch.nan)
    function(*inputs, y, heads, tokens, size**-0.5)
    return y


CASES = [
    *(
        Case(name, "{n} x {n} x {n}", call, lambda n: [(n, n)] * 2, lambda a, b: a @ b.T)
        for name, call in (
            ("matmul_mma", product),
            ("matmul_wgmma", product),
            ("matmul_cluster", partial(product, dtype=torch.bfloat16)),
        )
    ),
    Case(
        "attention_mma",
        "4 heads, {n} tokens, size 64",
        attention,
        lambda n: [(4, n, 64)] * 3,
        torch.nn.functional.scaled_dot_product_attention,
    ),
]


def load(case: Case, target: str | None = None, folder: Path = FOLDER) -> Callable:
    """The kernel's function."""
    library = jitload.load(folder / f"{case.name}.cu", target=target)
    return getattr(library, case.name)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the whole: norm of the difference over norm."""
    return float((got.double() - truth).norm() / truth.norm())


def row(case: Case, folder: Path, n: int = 1024) -> list[str]:
    """Of a copy of the file in `folder`, which no cache knows."""
    inputs = case.drawn(n)
    truth = case.truth(*(x.double() for x in inputs))
    case.call(load(case, "cpu"), *case.drawn(128))  # builds the simulator's part, too
    text = (FOLDER / f"{case.name}.cu").read_text()
    (folder / f"{case.name}.cu").write_text(f"{text}// {time.time_ns()}\n")
    start = time.perf_counter()
    function = load(case, "cpu", folder)
    built = time.perf_counter() - start
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        got = case.call(function, *inputs)
        times.append(time.perf_counter() - start)
    errors = (error(got, truth), error(case.truth(*inputs), truth))
    shown = (duration(built), duration(min(times)), *(f"{each:.1e}" for each in errors))
    return [case.name, case.shown.format(n=n), *shown]


def main() -> None:
    """Write the table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(case, Path(folder)) for case in CASES]
    PART.write(f"{cores()}, bfloat16.\n\n{table(HEAD, rows, 'llr')}")


if __name__ == "__main__":
    main()
