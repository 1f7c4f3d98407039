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
from pathlib import Path
from typing import NamedTuple

import torch

import jitload
from docs.programs.page import Part, cores, duration, table
from toolchain import machine, resources

PART = Part("blackwell.md", "docs.programs.blackwell_ladder")
FOLDER = jitload.KERNELS.parent / "notebooks" / "ladders"
HEAD = ["rung", "sizes", "registers", "spilled bytes", "processor time", "error"]
CALLS = 3
# The numbers of e2m1, by their four bits.
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def dense(rows: int, k: int, generator: torch.Generator) -> tuple[list[torch.Tensor], torch.Tensor]:
    """A matrix [rows, k] of bfloat16, as a kernel takes it, and its values in float64."""
    x = torch.randn(rows, k, generator=generator).bfloat16()
    return [x], x.double()


def scale_units(scales: torch.Tensor) -> torch.Tensor:
    """Scales [rows, blocks], a byte each, in the units of 512 bytes that tensor memory wants.

    That of row r and block j is byte r % 32 * 16 + r / 32 * 4 + j of the unit for 128 rows and 4
    blocks; rows is a multiple of 128, blocks of 4.
    """
    rows, blocks = scales.shape
    units = scales.view(rows // 128, 4, 32, blocks // 4, 4)
    return units.permute(0, 3, 2, 1, 4).contiguous().flatten()


def scaled(four_bits: bool) -> Callable:
    """Makes a matrix with block scales: elements, scales in units, and its values in float64."""

    def make(
        rows: int, k: int, generator: torch.Generator
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        if four_bits:
            codes = torch.randint(16, (rows, k), generator=generator, dtype=torch.uint8)
            elements = codes[:, 0::2] | codes[:, 1::2] << 4
            numbers = torch.cat([E2M1, -E2M1])[codes.long()].double()
            scales = (torch.rand(rows, k // 16, generator=generator) * 4).to(torch.float8_e4m3fn)
            values, scales = scales.double(), scales.view(torch.uint8)
        else:
            x = torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn)
            elements, numbers = x.view(torch.uint8), x.double()
            scales = torch.randint(
                120, 135, (rows, k // 32), generator=generator, dtype=torch.uint8
            )
            values = torch.exp2(scales.double() - 127)
        values = values.repeat_interleave(k // values.shape[1], 1)
        return [elements, scale_units(scales)], numbers * values

    return make


class Rung(NamedTuple):
    """A function of a file. make: a matrix [rows, k], as the function takes it."""

    name: str
    file: str
    make: Callable

    def load(self, target: str | None = None, folder: Path = FOLDER) -> Callable:
        library = jitload.load(folder / f"20_{self.file}.cu", target=target)
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
    Rung("matmul_mxfp8", "matmul_block_scales", scaled(four_bits=False)),
    Rung("matmul_nvfp4", "matmul_block_scales", scaled(four_bits=True)),
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


def main() -> None:
    """Write the table."""
    rows = [*(row(rung, 1024, 1024, 1024) for rung in RUNGS), row(ATTENTION, 4, 1024)]
    PART.write(f"On the simulator ({cores()}).\n\n{table(HEAD, rows, 'llr')}")


if __name__ == "__main__":
    main()
