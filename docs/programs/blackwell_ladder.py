"""Blackwell: resources and errors of the ladder notebooks/ladders/20_*.cu, for docs/blackwell.md.

    python -m docs.programs.blackwell_ladder

Each rung is compiled for sm_100a by nvcc, which tells its resources, and runs on the simulator: its
error is that against float64, its time the processor time of the best of several calls.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

import jitload
import reference
from docs.programs.page import Part, cores, duration, table
from kernels.quantize_mxfp8 import quantize_mxfp8
from kernels.quantize_nvfp4 import quantize_nvfp4
from toolchain import machine, resources

PART = Part("blackwell.md", "docs.programs.blackwell_ladder")
FOLDER = jitload.KERNELS.parent / "notebooks" / "ladders"
HEAD = ["rung", "sizes", "registers", "spilled bytes", "processor time", "error"]
CALLS = 3


def dense(rows: int, k: int, generator: torch.Generator) -> tuple[list[torch.Tensor], torch.Tensor]:
    """A matrix [rows, k] of bfloat16, as a kernel takes it, and its values in float64."""
    x = torch.randn(rows, k, generator=generator).bfloat16()
    return [x], x.double()


def scaled(quantize: Callable) -> Callable:
    """Makes a matrix with block scales: elements and scales, as quantize makes them, and its values
    in float64. Blocks of 16 differ in size by up to 2^14.
    """

    def make(
        rows: int, k: int, generator: torch.Generator
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        sizes = torch.randint(-7, 8, (rows, k // 16), generator=generator).float().exp2()
        x = torch.randn(rows, k, generator=generator) * sizes.repeat_interleave(16, 1)
        elements, scales, *_ = quantize(x)
        return [elements, scales], reference.dequantize_blocks(elements, scales)

    return make


def quantize_nvfp4_alone(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Without a scale of the whole tensor, which the rung does not multiply by."""
    return quantize_nvfp4(x, torch.ones(()))


class Rung(NamedTuple):
    """A function of a file. make: a matrix [rows, k], as the function takes it."""

    name: str
    file: str
    make: Callable

    def load(self, target: str | None = None) -> Callable:
        library = jitload.load(FOLDER / f"20_{self.file}.cu", target=target)
        return getattr(library, self.name)

    def drawn(
        self, m: int, n: int, k: int, device: str = "cpu"
    ) -> tuple[list[torch.Tensor | int], torch.Tensor, torch.Tensor]:
        """The arguments of the function; c [m, n] among them, of NaN; and the truth in float64."""
        generator = torch.Generator().manual_seed(m * n + k)
        (a, values_of_a), (b, values_of_b) = (self.make(r, k, generator) for r in (m, n))
        inputs = [x.to(device) for pair in zip(a, b, strict=True) for x in pair]
        c = torch.full((m, n), torch.nan, device=device)
        return [*inputs, c, m, n, k], c, values_of_a @ values_of_b.T


RUNGS = [
    Rung("matmul_one_accumulator", "matmul_one_accumulator", dense),
    Rung("matmul_two_accumulators", "matmul_two_accumulators", dense),
    Rung("matmul_launch_control", "matmul_launch_control", dense),
    Rung("matmul_pairs", "matmul_pairs", dense),
    Rung("matmul_mxfp8", "matmul_block_scales", scaled(quantize_mxfp8)),
    Rung("matmul_nvfp4", "matmul_block_scales", scaled(quantize_nvfp4_alone)),
]


class Attention(NamedTuple):
    """attention_forward.cu: heads of 128 numbers; tokens is a multiple of 256."""

    name: str = "attention_forward"
    file: str = "attention_forward"
    load = Rung.load

    def drawn(
        self, heads: int, tokens: int, gain: float = 1
    ) -> tuple[list[torch.Tensor | int | float], torch.Tensor, torch.Tensor]:
        """The arguments of the function; y [heads, tokens, 128] among them, of NaN; and the truth.

        gain: of q, so that some weights are large.
        """
        generator = torch.Generator().manual_seed(heads * tokens)
        drawn = [torch.randn(heads, tokens, 128, generator=generator) for _ in range(3)]
        q, k, v = ((x * by).bfloat16() for x, by in zip(drawn, (gain, 1, 1), strict=True))
        y = torch.full_like(q, torch.nan)
        truth = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        return [q, k, v, y, heads, tokens, 128**-0.5], y, truth


ATTENTION = Attention()


def resources_of(file: str) -> list[resources.Use]:
    """What the kernels of a rung use, compiled for sm_100a.

    Raises: FileNotFoundError without nvcc, CalledProcessError where it refuses the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [machine.cuda_tool("nvcc"), "-arch=sm_100a", "-cubin", "-Xptxas=-v"]
        command += ["-o", f"{folder}/out.cubin", FOLDER / f"20_{file}.cu"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return resources.uses(done.stdout + done.stderr)


def row(rung: Rung | Attention, *sizes: int) -> list[str]:
    used = resources_of(rung.file)
    format_ = rung.name.removeprefix("matmul_")
    used = [use for use in used if len(used) == 1 or format_ in use.kernel.lower()]
    function = rung.load("cpu")
    arguments, c, truth = rung.drawn(*sizes)
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        function(*arguments)
        times.append(time.process_time() - start)
    error = float((c.double() - truth).norm() / truth.norm())
    (use,) = used
    shown = (str(use.registers), str(use.spilled), duration(min(times)), f"{error:.1e}")
    return [rung.name, " x ".join(map(str, sizes)), *shown]


def format_row(
    name: str, bits: float, quantize: Callable, rung: Rung, size: int = 512
) -> list[str]:
    """What rounding to a format costs: of normal numbers, and of their product in float64."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(size, size, generator=generator) for _ in range(2))
    operands = [quantize(x), quantize(w)]
    elements, scales, *scale = zip(*operands, strict=True)
    y = torch.empty(size, size)
    rung.load("cpu")(*elements, *scales, y, size, size, size)
    for each in scale:  # of the whole tensors
        y *= each[0] * each[1]
    rounded, truth = reference.dequantize_blocks(*operands[0]), x.double() @ w.double().mT
    errors = (rounded - x).norm() / x.norm(), (y - truth).norm() / truth.norm()
    return [name, str(bits), *(f"{float(error):.1e}" for error in errors)]


def main() -> None:
    """Write the tables."""
    rows = [*(row(rung, 1024, 1024, 1024) for rung in RUNGS), row(ATTENTION, 4, 1024)]
    formats = [
        format_row("MXFP8", 8.25, quantize_mxfp8, RUNGS[4]),
        format_row("NVFP4", 4.5, quantize_nvfp4, RUNGS[5]),
    ]
    head = ["format", "bits a number", "error of x", "error of the product"]
    PART.write(
        f"On the simulator ({cores()}).\n\n{table(HEAD, rows, 'llr')}\n\n"
        "What the formats cost: normal numbers, quantized by the ops and multiplied by rung 5,"
        " 512 x 512 x 512, against the product in float64 of what was not quantized.\n\n"
        f"{table(head, formats, 'lr')}"
    )


if __name__ == "__main__":
    main()
