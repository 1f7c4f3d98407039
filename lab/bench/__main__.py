"""`python -m lab.bench`, which is `make bench`."""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import jitload
import lab.bench
from lab.bench import products, report
from lab.bench.cells import COLS, NAMES, TWO_DIMENSIONAL, Cell, cells, host_cells
from lab.bench.compiling import compile_everything, processes, say, since_start
from lab.bench.measuring import measure_until
from lab.bench.products import Product
from lab.bench.table import CSV, join
from lab.measure import arguments

SECONDS = 540  # a cell that has not begun by then is left for another run


def main(given: list[str] | None = None) -> int:
    about = lab.bench.__doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="make bench", description=about)
    every = [*NAMES, *products.NAMES]
    parser.add_argument("--ops", nargs="+", choices=every, default=every)
    parser.add_argument(
        "--cols", nargs="+", type=int, default=[*COLS], help="row widths; products have their own"
    )
    parser.add_argument(
        "--match", default="", metavar="TEXT", help='only cells with it in their name: "few rows"'
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"]
    )
    parser.add_argument("--csv", type=Path, default=CSV, help="where the figures are kept")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no cell after that")
    parser.add_argument("--no-host", action="store_true", help="leave out the host's time a call")
    asked = parser.parse_args(given)
    if jitload.device().type != "cuda":
        sys.exit(
            "make bench needs an NVIDIA GPU and nvcc: here kernels run on the simulator, whose"
            " time says nothing about a GPU's. `python -m jitload doctor` says what is missing"
        )
    with tempfile.TemporaryDirectory(prefix="bench_") as caches:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches  # nobody profits from an earlier run
        return run(asked)


def run(asked: argparse.Namespace) -> int:
    todo = chosen(asked)
    say(f"{len(todo)} cells; compiling first")
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    late = compile_everything(todo)
    deadline = time.time() + asked.seconds - since_start()
    lines, left = [], 0
    try:
        with processes(1) as pool:
            everything = _measured(pool, todo, late, deadline)
            for number, (cell, measured) in enumerate(everything, 1):
                if measured is None:
                    left += 1
                    continue
                lines += [line | {"run": began} for line in measured]
                say(f"[{number}/{len(todo)}] {cell}: {_summary(measured)}")
    finally:  # what has been measured is kept, whatever came in between
        if lines:
            join(asked.csv, lines)
            say(f"wrote {asked.csv}")
    if not lines:
        sys.exit(f"no cell was measured within {asked.seconds} s: choose fewer")
    if left:
        say(f"{left} cells are left: run again with --ops, --cols or --match, and the CSV joins")
    if asked.csv == CSV:
        for path in report.write(CSV):
            say(f"wrote {path}")
    return 0


def chosen(asked: argparse.Namespace) -> list[Cell | Product]:
    """What a run measures; products last, for each of which torch.compile takes its time."""
    ops = [name for name in asked.ops if name in NAMES]
    on_host = [] if asked.no_host else [name for name in asked.ops if name in TWO_DIMENSIONAL]
    todo: list[Cell | Product] = [*host_cells(on_host)]
    todo += cells(ops, arguments.dtypes(asked.dtypes), asked.cols)
    if "bfloat16" in asked.dtypes:
        todo += products.products(asked.ops)
    return [cell for cell in todo if asked.match in str(cell)]


def _measured(
    pool: ProcessPoolExecutor, todo: list[Cell | Product], late: set[Cell], deadline: float
) -> Iterator[tuple[Cell | Product, list[dict[str, object]] | None]]:
    """Each cell with its lines, as they come; without any if the deadline was before its turn.

    The host's time is taken with nobody beside.
    """
    on_host = [cell for cell in todo if cell.on_host]
    on_gpus = [cell for cell in todo if not cell.on_host]
    for cell in on_host:
        yield cell, pool.submit(measure_until, deadline, cell, cell in late).result()
    tasks = {pool.submit(measure_until, deadline, cell, cell in late): cell for cell in on_gpus}
    for task in as_completed(tasks):
        yield tasks[task], task.result()


def _summary(lines: list[dict[str, object]]) -> str:
    shown = []
    for line in lines:
        figure = line.get("failure", f"{line.get('time_us', 0):.1f} us")
        if "percent_of_copy" in line:
            figure = f"{line['percent_of_copy']:.1f}%"
        if line.get("operations", math.nan) > 0:
            figure = f"{line['tflops']:.0f} TFLOPS"
        if line.get("throttled"):
            figure += f" at {line['mhz']:.0f} MHz by {line['throttled']}"
        shown.append(f"{line['implementation']} {figure}")
    return ", ".join(shown)


if __name__ == "__main__":
    sys.exit(main())
