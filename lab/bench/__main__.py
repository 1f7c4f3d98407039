"""`python -m lab.bench`, which is `make bench`."""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import jitload
import lab.bench
from lab.bench import distribution, products, random_products, report
from lab.bench.cells import COLS, NAMES, Cell, cells, host_cells
from lab.bench.compiling import (
    build_kernels,
    compile_everything,
    in_short,
    processes,
    processes_to_compile,
    say,
    since_start,
)
from lab.bench.measuring import measure_until
from lab.bench.product import Product
from lab.bench.table import CSV, join, longest_ago
from lab.measure import arguments

SECONDS = 540  # cells that have not begun by then are left for another run


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
    parser.add_argument(
        "--random", type=int, default=0, metavar="N", help="N random shapes instead of chosen ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random shapes")
    parser.add_argument("--cell", type=int, help="the random shape of that number alone")
    parser.add_argument("--csv", type=Path, help="where the figures are kept")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no cell after that")
    parser.add_argument("--no-host", action="store_true", help="leave out the host's time a call")
    asked = parser.parse_args(given)
    asked.csv = asked.csv or (CSV.with_name("random.csv") if asked.random else CSV)
    if jitload.device().type != "cuda":
        sys.exit(
            "make bench needs an NVIDIA GPU and nvcc: here kernels run on the simulator, whose"
            " time says nothing about a GPU's. `python -m jitload doctor` says what is missing"
        )
    with tempfile.TemporaryDirectory(prefix="bench_") as caches:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches  # start without the caches of earlier runs
        return run(asked)


def run(asked: argparse.Namespace) -> int:
    todo = randomly(asked) if asked.random else longest_ago(chosen(asked), asked.csv)
    say(f"{len(todo)} cells; compiling first")
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    late: set[Cell] = set()
    if asked.random:
        build_kernels(todo)
        pools = partial(
            processes, processes_to_compile(), Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        )
    else:
        late = compile_everything(todo)
        pools = partial(processes, 1)
    deadline = time.time() + asked.seconds - since_start()
    lines, left, failed = [], 0, 0
    try:
        for number, (cell, measured) in enumerate(_measured(todo, late, deadline, pools), 1):
            if measured is None:
                left += 1
            elif isinstance(measured, BaseException):
                failed += 1
                say(f"[{number}/{len(todo)}] {cell} failed: {in_short(measured)}")
            else:
                lines += [line | {"run": began} for line in measured]
                say(f"[{number}/{len(todo)}] {cell}: {_summary(measured)}")
    finally:  # keep what has been measured, even after an error or an interrupt
        if lines and asked.random:
            tell_distribution(asked, lines)
        elif lines:
            join(asked.csv, lines)
            say(f"wrote {asked.csv}")
    if not lines and not failed:
        sys.exit(f"no cell was measured within {asked.seconds} s: choose fewer")
    if left:
        again = "give it more --seconds" if asked.random else "run again, which begins with them"
        say(f"{left} cells are left: {again}")
    if lines and not asked.random and asked.csv == CSV:
        for path in report.write(CSV):
            say(f"wrote {path}")
    return 1 if failed else 0


def randomly(asked: argparse.Namespace) -> list[Cell | Product]:
    """The random cells: all of them, or the one with the given number."""
    numbers = range(asked.random) if asked.cell is None else [asked.cell]
    found = [random_products.drawn(asked.seed, number, asked.ops) for number in numbers]
    return [cell for cell in found if asked.match in str(cell)]


def tell_distribution(asked: argparse.Namespace, lines: list[dict[str, object]]) -> None:
    """Publish the distribution of random cells; a single cell is only shown."""
    new = distribution.shares(lines)
    if new.empty:
        say("no rival computes any of these cells")
        return
    ops = " ".join(asked.ops) if set(asked.ops) != set(random_products.OPS) else "all"
    new = new.assign(seed=asked.seed, of=asked.random, ops=ops)
    print(distribution.summary(new), distribution.worst(new), sep="\n\n", flush=True)
    if asked.cell is None:
        command = f"python -m lab.bench --random {asked.random} --seed {asked.seed}"
        for path in distribution.publish(asked.csv, new, command):
            say(f"wrote {path}")


def chosen(asked: argparse.Namespace) -> list[Cell | Product]:
    """The cells of a run; products last, because torch.compile takes long for each."""
    ops = [name for name in asked.ops if name in NAMES]
    todo: list[Cell | Product] = [*host_cells([] if asked.no_host else ops)]
    if not asked.no_host:
        todo += products.host_products(asked.ops)
    todo += cells(ops, arguments.dtypes(asked.dtypes), asked.cols)
    if "bfloat16" in asked.dtypes:
        todo += products.products(asked.ops)
    return [cell for cell in todo if asked.match in str(cell)]


# The lines of a cell; None if the deadline passed before its turn; or the exception.
Outcome = list[dict[str, object]] | BaseException | None


def _measured(
    todo: list[Cell | Product],
    late: set[Cell],
    deadline: float,
    pools: Callable[[], ProcessPoolExecutor],
) -> Iterator[tuple[Cell | Product, Outcome]]:
    """Each cell with its outcome, as they complete.

    A kernel with an illegal access breaks all later work of its process. So failed cells are
    measured again in new processes; the first of them, the likely culprit, last and alone.
    """
    suspects: list[Cell | Product] = []
    while todo:
        failed: list[Cell | Product] = []
        with pools() as pool:
            for cell, outcome in _measured_once(pool, todo, late, deadline):
                if isinstance(outcome, BaseException):
                    say(f"{cell} is measured again later: {in_short(outcome)}")
                    failed.append(cell)
                else:
                    yield cell, outcome
        suspects += failed[:1]
        todo = failed[1:]
    for suspect in suspects:
        with processes(1) as pool:
            yield from _measured_once(pool, [suspect], late, deadline)


def _measured_once(
    pool: ProcessPoolExecutor, todo: list[Cell | Product], late: set[Cell], deadline: float
) -> Iterator[tuple[Cell | Product, Outcome]]:
    """Host times are measured first, with nothing else running."""

    def begun(cell: Cell | Product) -> Future:
        return pool.submit(measure_until, deadline, cell, cell in late)

    for cell in [cell for cell in todo if cell.on_host]:
        task = begun(cell)
        yield cell, task.exception() or task.result()
    tasks = {begun(cell): cell for cell in todo if not cell.on_host}
    for task in as_completed(tasks):
        yield tasks[task], task.exception() or task.result()


def _summary(lines: list[dict[str, object]]) -> str:
    shown = []
    for line in lines:
        figure = line.get("failure", f"{line.get('time_us', 0):.1f} us")
        if "percent_of_copy" in line:
            figure = f"{line['percent_of_copy']:.1f}%"
        if line.get("operations", math.nan) > 0:
            figure = f"{line['tflops']:.0f} TFLOPS"
        if "plain_us" in line:
            figure += f", {line['time_us'] / line['plain_us'] - 1:+.1%} beside plain,"
        if line.get("throttled"):
            figure += f" at {line['mhz']:.0f} MHz by {line['throttled']}"
        shown.append(f"{line['implementation']} {figure}")
    return ", ".join(shown)


if __name__ == "__main__":
    sys.exit(main())
