"""Predicted against measured times of kernels as strangers write them, and of wrong turns.

    python -m docs.programs.predicted_kernels measure CSV            on a GPU: the times
    python -m docs.programs.predicted_kernels predict CSV [KERNEL]   elsewhere: predictions

The kernels stand in predicted_kernels.cu. No measured time is used to predict any of them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import jitload
import lab
from docs.programs.predicted import HOST_CYCLES, PREDICTED, predicted, to_fill, told
from lab.bench.compiling import in_short
from lab.predictor.measuring import gpu_seconds

SOURCE = Path(__file__).with_name("predicted_kernels.cu")
CELL = ["kind", "kernel", "size", "measured_us"]
Grid = int | tuple[int, int]


@dataclass
class Case:
    """launches: kernel, grid, block and arguments of each."""

    kind: str
    name: str
    size: str
    launches: list[tuple[str, Grid, Grid, tuple]]

    def call(self, kernel: jitload.Kernel) -> None:
        for name, grid, block, arguments in self.launches:
            getattr(kernel, name)[grid, block](*arguments)


def one(kind: str, name: str, size: object, grid: Grid, block: Grid, *arguments: object) -> Case:
    """name: the kernel's, and what was chosen after a blank."""
    return Case(kind, name, str(size), [(name.partition(" ")[0], grid, block, arguments)])


def tiles(width: int, height: int, x: int, y: int) -> tuple[int, int]:
    return -(-width // x), -(-height // y)


def blocks(n: int, threads: int = 256) -> int:
    return -(-n // threads)


def cases(device: str) -> Iterator[Case]:
    seed = torch.Generator().manual_seed(54)

    def floats(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=seed).to(device)

    def ints(limit: int, n: int) -> torch.Tensor:
        return torch.randint(limit, (n,), generator=seed, dtype=torch.int32).to(device)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype)

    for width, height in ((1024, 1024), (4096, 4096), (5000, 1000)):
        xy = floats(height, width), empty(width, height), width, height
        size, tile = f"{height}x{width}", tiles(width, height, 32, 32)
        strip, square = tiles(width, height, 32, 8), tiles(width, height, 16, 16)
        yield one("transpose", "transpose_naive", size, strip, (32, 8), *xy)
        yield one("transpose", "transpose_shared", size, tile, (32, 8), *xy)
        yield one("transpose", "transpose_padded", size, tile, (32, 8), *xy)
        yield one("stencil", "stencil5", size, square, (16, 16), *xy)
        yield one("stencil", "blur3x3", size, strip, (32, 8), *xy)
    for n in (1 << 20, 1 << 24):
        x, y, z, b = floats(n), empty(n), floats(n), blocks(n)
        letters, bins, index = ints(1 << 16, n), empty(256, dtype=torch.int32), ints(n, n)
        partial = empty(b)
        yield one("stencil", "convolve1d", n, b, 256, x, floats(9), y, n, 9)
        yield one("histogram", "histogram_shared", n, 264, 256, letters, bins, n)
        yield one("histogram", "histogram_global", n, b, 256, letters, bins, n)
        yield one("gather", "gather", n, b, 256, x, index, y, n)
        yield one("reduction", "reduce_interleaved", n, b, 256, x, partial, n)
        yield one("reduction", "reduce_stride", n, 264, 256, x, partial, n)
        yield one("reduction", "scan_block", n, b, 256, x, y)
        yield one("elementwise", "saxpy", n, b, 256, 2.0, x, y, n)
        yield one("elementwise", "bias_gelu", n, b, 256, x, z, y, n, 1024)
        yield Case(
            "several launches", "saxpy twice", f"{n}", 2 * [("saxpy", b, 256, (2.0, x, y, n))]
        )
        for stride in (8, 32):
            yield one("wrong turn", f"uncoalesced {stride}", n, b, 256, x, y, n, stride)
        yield one("wrong turn", "copy_run", n, blocks(n, 8192), 256, x, y, n)
        for grid, block in ((1, 1024), (32, 32), (n // 32, 32)):
            name = f"square_loop of {grid if grid < 1024 else 'many'} x {block}"
            yield one("wrong turn", name, n, grid, block, x, y, n)
        yield one("wrong turn", "square_offset", n, b, 256, x, y, n)
        yield one("wrong turn", "spilled", n, b, 256, x, y, n, 5)
        for stride in (1, 8, 32):
            yield one("wrong turn", f"banks {stride}", n, b, 256, x, y, n, stride)
        yield one("wrong turn", "sum_atomic", n, b, 256, x, partial, n)
        yield one("wrong turn", "divergent", n, b, 256, x, y, n)
    for rows, cols in ((65536, 128), (8192, 1000), (1000, 5000), (64, 50257)):
        x, y, size = floats(rows, cols), empty(rows, cols), f"{rows}x{cols}"
        sums, vector, out = empty(cols), floats(cols), empty(rows)
        thread, warp, column = blocks(rows), blocks(32 * rows), blocks(cols)
        at, shape = empty(rows, dtype=torch.int32), (rows, cols)
        yield one("rows", "argmax_warp", size, warp, 256, x, at, *shape)
        yield one("rows", "softmax_thread", size, thread, 256, x, y, *shape)
        yield one("rows", "layernorm_block", size, rows, 256, x, y, cols)
        yield one("rows", "cumsum_rows", size, blocks(rows, 64), 64, x, y, *shape)
        yield one("rows", "column_sums", size, column, 256, x, sums, *shape)
        yield one("product", "gemv_thread", size, blocks(rows, 128), 128, x, vector, out, *shape)
        yield one("product", "gemv_warp", size, warp, 256, x, vector, out, *shape)
        yield one("wrong turn", "scale_rows", size, thread, 256, x, vector, y, *shape)
        summed = ("column_sums", column, 256, (x, sums, *shape))
        centred = ("subtract", (rows, column), 256, (x, sums, y, *shape))
        yield Case("several launches", "centred columns", size, [summed, centred])
    for count, n in ((16384, 16), (2048, 32), (128, 100)):
        abc, size = (
            (floats(count, n, n), floats(count, n, n), empty(count, n, n)),
            f"{count} of {n}",
        )
        yield one("product", "bmm_naive", size, count, (min(n, 16), min(n, 16)), *abc, n)
        yield one("product", "bmm_thread", size, blocks(count, 128), 128, *abc, count, n)
    for n in (512, 1024):
        abc, square = (floats(n, n), floats(n, n), empty(n, n)), tiles(n, n, 16, 16)
        yield one("product", "sgemm_naive", n, square, (16, 16), *abc, n)
        yield one("product", "sgemm_tiled", n, square, (16, 16), *abc, n)
    for rows, each in ((1 << 16, 16), (1 << 18, 8)):
        begin = torch.arange(rows + 1, dtype=torch.int32).to(device) * each
        values = begin, ints(rows, rows * each), floats(rows * each), floats(rows), empty(rows)
        yield one("gather", "spmv_csr", f"{rows} by {each}", blocks(rows), 256, *values, rows)
    for rows, dim in ((2048, 768), (16384, 1024)):
        taken = floats(50000, dim), ints(50000, rows), empty(rows, dim)
        yield one("gather", "embedding", f"{rows}x{dim}", rows, 256, *taken, dim)
    for n, count in ((1 << 18, 64), (1 << 20, 256)):
        points = floats(n, 4), floats(count, 4), empty(n, dtype=torch.int32)
        yield one("arithmetic", "nearest", f"{n} to {count}", blocks(n), 256, *points, n, count)
    for n in (8192, 32768):
        yield one("arithmetic", "nbody", n, blocks(n), 256, floats(n, 4), empty(n, 4), n)
    for n in (1024, 4096):
        steps = empty(n, n, dtype=torch.int32)
        yield one("arithmetic", "mandelbrot", n, tiles(n, n, 32, 8), (32, 8), steps, n, n)


def measure(path: Path) -> None:
    """Writes `path`: a line for each case."""
    kernel = jitload.load(str(SOURCE))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CELL)
        for case in cases("cuda"):
            seconds = gpu_seconds(lambda case=case: case.call(kernel), host_cycles=HOST_CYCLES)
            writer.writerow([case.kind, case.name, case.size, f"{1e6 * seconds:.4g}"])
            file.flush()


def predict(path: Path, named: list[str]) -> None:
    """Adds the predictions to the lines of `path`, of all kernels or of those named."""
    table = to_fill(path)
    kernel = jitload.load(str(SOURCE), target="cpu")
    for case in cases("cpu"):
        index = table.index[(table.kernel == case.name) & (table["size"] == case.size)]
        if (named and case.name.partition(" ")[0] not in named) or index.empty:
            continue
        try:
            found = lab.predict(lambda case=case: case.call(kernel), gpu="H200")
        except Exception as failure:
            print(case.name, case.size, in_short(failure), flush=True)
            continue
        table.loc[index[0], PREDICTED] = predicted(found)
        measured = float(table.measured_us[index[0]])
        ratio = 1e6 * found.seconds / measured
        print(f"{ratio:6.2f} {measured:9.4g} us  {case.name} {case.size}", flush=True)
        table.to_csv(path, index=False)
    told(table, "kind")


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    else:
        predict(Path(sys.argv[2]), sys.argv[3:])
