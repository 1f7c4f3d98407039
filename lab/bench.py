"""`make bench`: every op against everything else that is installed, in one run on a GPU.

    python -m lab.bench                                   all of it: minutes on an H200
    python -m lab.bench --ops square relu --cols 1024     a part of it

A machine with several GPUs of a kind shares the work out among them; percents are of a copy on the
same GPU.

The ops are those of reference.py, in both directions, in bfloat16 at 2^28 elements and float32 at
2^27. Options that take and give the same tensors count once: the first stands for them. A rival is
timed if its results are ours; a cell says why where it is not.

docs/bench.csv gets one line for each op, direction, options, type, width and implementation, and in
each line the conditions and the run: when it began, in UTC, or "2026-11-22 by 11:28" for lines of
which no more is known than the day and when they were published. A run replaces the lines that it
measures again under the same conditions and leaves all others, so that all lines of a cell are of
one run; `lab.report` then writes the tables and pictures of the newest conditions, and numbers the
runs in them.
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import jitload
import reference
from lab import arguments, measure, rivals
from lab.case import Case, Implementation, ours

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLS = (256, 1024, 4096, 8192, 16384, 65536, 262144)
ELEMENTS = {torch.bfloat16: 1 << 28, torch.float32: 1 << 27}
HOST_SHAPE = (64, 1024)
HOST_CALLS = 200
CALL_SECONDS = 0.05  # of calls for each median: 100 and more
SECONDS = 540  # a cell that has not begun by then is left for another run
COMPILERS = 14  # processes for each GPU; each holds the tensors of one cell
COMPILE_SECONDS = 150  # for torch.compile, all cells together
VIEWS = {"reduce_sum"}  # ops whose gradient is a view of the one that arrives: nothing to measure

CSV = Path(__file__).resolve().parents[1] / "docs" / "bench.csv"
MACHINE = ("device", "driver", "cuda", "torch", "triton")
CONDITIONS = (*MACHINE, *rivals.LIBRARIES)
CELL = ("op", "options", "direction", "dtype", "cols", "rows", "clock")
KEY = (*CELL, "implementation")
FIGURES = ("version", "time_us", "spread_us", "bytes", "gb_per_s", "percent_of_copy", "failure")
COLUMNS = [*KEY, *FIGURES, "run", *CONDITIONS, "copy_gb_per_s"]


@dataclass(frozen=True)
class Cell:
    """What is measured at once: an op in one direction, type and shape, by everybody.

    direction: "forward", "backward" or, where the host's time counts, "both".
    """

    name: str
    options: dict = field(hash=False)
    direction: str
    dtype: torch.dtype
    shape: tuple[int, int]

    @property
    def op(self) -> reference.Op:
        return reference.OPS[self.name]

    def case(self) -> Case:
        backward = self.direction != "forward"
        return Case(self.op, self.shape, self.dtype, jitload.device(), self.options, backward)

    def columns(self) -> dict[str, object]:
        return {
            "op": self.name,
            "options": ", ".join(f"{name}={value}" for name, value in self.options.items()),
            "direction": self.direction,
            "dtype": arguments.dtype_name(self.dtype),
            "cols": self.shape[1],
            "rows": self.shape[0],
        }

    def __str__(self) -> str:
        *names, cols, rows = self.columns().values()
        return " ".join([*filter(None, names), f"{rows} x {cols}"])


def cells(names: list[str], dtypes: list[torch.dtype], cols: list[int]) -> Iterator[Cell]:
    """Everything that a run measures on the GPU, one op after the other."""
    for name in names:
        directions = ("forward",) if name in VIEWS else ("forward", "backward")
        for options, direction, dtype, width in itertools.product(
            variants(reference.OPS[name]), directions, dtypes, cols
        ):
            yield Cell(name, options, direction, dtype, (max(ELEMENTS[dtype] // width, 1), width))


def host_cells(names: list[str]) -> Iterator[Cell]:
    """And on the host: a call of little work, without and with gradients."""
    for name in names:
        for options, direction in itertools.product(
            variants(reference.OPS[name]), ("forward", "both")
        ):
            yield Cell(name, options, direction, torch.float32, HOST_SHAPE)


def variants(op: reference.Op) -> list[dict]:
    """The options of an op that differ in the tensors that it takes or gives."""
    found: dict[tuple, dict] = {}
    for options in op.options:
        inputs = op.inputs(2, 3, without=options)
        result = op.function(**inputs, **options)
        outputs = [result] if isinstance(result, torch.Tensor) else result
        kinds = tuple((y.shape, y.dtype) for y in (*inputs.values(), *outputs))
        found.setdefault(kinds, options)
    return list(found.values())


# ---- processes, each of which sees one GPU


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def processes(count: int) -> ProcessPoolExecutor:
    """So many for each GPU."""
    context = multiprocessing.get_context("spawn")
    turns = context.SimpleQueue()
    for gpu in gpus() * count:
        turns.put(gpu)
    return ProcessPoolExecutor(len(gpus()) * count, context, _see_one_gpu, (turns,))


def _see_one_gpu(turns: multiprocessing.SimpleQueue) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = turns.get()


# ---- compiling, on all cores; measuring then finds it in the caches


def compile_everything(todo: list[Cell]) -> set[Cell]:
    """Our kernels, and torch.compile's of every cell, in processes side by side.

    Returns the cells that torch.compile has not finished within COMPILE_SECONDS: some wide rows
    take it minutes. It picks its launches by timing them, which this crowd on the GPU would upset;
    so what it picked is thrown away, and picked again, alone, when the cell is measured.
    """
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in each of the processes
    pool = processes(min(COMPILERS, max((os.cpu_count() or 1) // len(gpus()), 1)))
    names = list(dict.fromkeys(cell.name for cell in todo))
    for build in [pool.submit(_build, name) for name in names]:
        build.result()
    say(f"our kernels are there; torch.compile has {COMPILE_SECONDS} s")
    slowest_first = sorted(todo, key=lambda cell: (cell.direction == "forward", -cell.shape[1]))
    tasks = {pool.submit(_compile, cell): cell for cell in slowest_first}
    with contextlib.suppress(TimeoutError):
        for number, task in enumerate(as_completed(tasks, COMPILE_SECONDS), 1):
            if problem := task.exception():
                say(f"[{number}/{len(tasks)}] compiling {tasks[task]}: {_in_short(problem)}")
            elif number % 12 == 0 or number == len(tasks):
                say(f"[{number}/{len(tasks)}] compiled")
    late = {cell for task, cell in tasks.items() if not task.done()}
    for process in list(pool._processes.values()) if late else ():
        process.terminate()  # it would compile on while we measure
    pool.shutdown(cancel_futures=True)
    del os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    for picked in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        picked.unlink()
    return late


def _build(name: str) -> None:
    importlib.import_module(f"kernels.{name}")


def _compile(cell: Cell) -> None:
    case = cell.case()
    rival = rivals.RIVALS["compile"](cell.op)
    with rival.first_call():
        case.step(rival)()
    del case
    torch.cuda.empty_cache()


# ---- measuring


def measure_cell(
    cell: Cell, conditions: dict[str, object], without_compile: bool = False
) -> list[dict[str, object]]:
    """A line for everybody: time on the GPU, and the bandwidth that it means."""
    case = cell.case()
    expected: tuple[torch.Tensor, ...] = ()
    size = 0

    def measured(each: Implementation) -> dict[str, float]:
        nonlocal expected, size
        step, results = case.start(each)
        if each.ours:
            expected, size = results, measure.bytes_moved(case.reads, results)
        elif not agree(results, expected):
            raise ArithmeticError("its results are not ours")
        timing = measure.time_call(step, jitload.device(), CALL_SECONDS)
        gb_per_s = 1e-9 * size / timing.median
        return _times(timing) | {
            "bytes": size,
            "gb_per_s": gb_per_s,
            "percent_of_copy": 100 * gb_per_s / conditions["copy_gb_per_s"],
        }

    return _lines(cell, measure.GPU_CLOCK, measured, conditions, without_compile)


def measure_host(
    cell: Cell, conditions: dict[str, object], without_compile: bool = False
) -> list[dict[str, object]]:
    """A line for everybody: time that the host is busy with a call."""
    case = cell.case()

    def measured(each: Implementation) -> dict[str, float]:
        both = cell.direction == "both"
        call = (lambda: case.step(each)()) if both else case.step(each)
        with each.first_call():
            return _times(measure.time_on_host(call, HOST_CALLS))

    return _lines(cell, measure.HOST_CLOCK, measured, conditions, without_compile)


def _times(timing: measure.Timing) -> dict[str, float]:
    return {"time_us": 1e6 * timing.median, "spread_us": 1e6 * timing.spread}


def _lines(
    cell: Cell,
    clock: str,
    measured: Callable[[Implementation], dict[str, float]],
    conditions: dict[str, object],
    without_compile: bool,
) -> list[dict[str, object]]:
    """What `measured` says of each implementation, ours first; of a failed rival, the reason."""
    version = arguments.all_versions(cell.op)[-1]
    kernel = importlib.import_module(f"kernels.{cell.name}").kernel
    lines = []
    for label in ("ours", *rivals.rivals_of(cell.op)):
        line = cell.columns() | {"clock": clock, "implementation": label}
        try:
            if label == "ours":
                line["version"] = f"{version} {kernel.digest}"
                line |= measured(ours(cell.op, version))
            elif label == "compile" and without_compile:
                raise TimeoutError(f"not compiled after {COMPILE_SECONDS} s")
            else:
                line |= measured(rivals.RIVALS[label](cell.op))
        except Exception as problem:
            if label == "ours":
                raise
            line["failure"] = _in_short(problem)
        lines.append(line | conditions)
    return lines


def agree(results: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> bool:
    """Whether two implementations compute the same op: on average within a quarter.

    That is no judgement of error, which the tests give; it tells a rival of another op. Single
    elements may differ altogether: where a relu's input rounds to 0, so does its gradient.
    """
    return len(results) == len(expected) and all(
        one.shape == other.shape
        and bool((one - other).float().abs().mean() <= 0.25 * other.float().abs().mean() + 1e-6)
        for one, other in zip(results, expected, strict=True)
    )


@functools.cache
def conditions_here() -> dict[str, object]:
    """What the numbers depend on; the copy is measured at the first call."""
    facts = measure.environment(jitload.device())
    try:
        triton = importlib.import_module("triton").__version__
    except ImportError:
        triton = None
    return {
        "device": facts["device"],
        "driver": facts["driver"],
        "cuda": torch.version.cuda,
        "torch": facts["torch"],
        "triton": triton,
        **rivals.versions(),
        "copy_gb_per_s": measure.copy_bandwidth(),
    }


# ---- the table on disk


def join(path: Path, lines: list[dict[str, object]]) -> None:
    """Write the lines to the CSV, in place of those with the same key and conditions.

    A cell that is measured with one more rival installed takes the place of the old one, too.

    Lines of one set of conditions stand together, the newest set last, in it one op after the
    other in the order of reference.py.
    """
    import pandas

    table = pandas.DataFrame(lines, columns=COLUMNS)
    if path.exists():
        table = pandas.concat([read(path), table], ignore_index=True)
    texts = table.astype(object).fillna("").astype(str)
    latest = ~texts.duplicated([*KEY, *CONDITIONS], keep="last")
    table, texts = table[latest], texts[latest]
    now = texts.groupby([*CELL, *MACHINE])[[*rivals.LIBRARIES]].transform("last")
    before = texts[[*rivals.LIBRARIES]]
    fewer = ((before == now) | (before == "")).all(axis=1) & (before != now).any(axis=1)
    table, texts = table[~fewer], texts[~fewer]
    of_last_run = texts["run"] == texts.groupby([*CELL, *CONDITIONS])["run"].transform("last")
    table, texts = table[of_last_run], texts[of_last_run]
    conditions = texts[[*CONDITIONS]].agg("\n".join, axis=1)
    turn = {text: place for place, text in enumerate(dict.fromkeys(reversed(conditions.tolist())))}
    table = in_order(table.assign(options=texts["options"]), -conditions.map(turn))
    table = table.astype({"bytes": "Int64"})
    for name, digits in {"time_us": 2, "spread_us": 2, "gb_per_s": 1}.items():
        table[name] = table[name].astype(float).round(digits)
    for name in ("percent_of_copy", "copy_gb_per_s"):
        table[name] = table[name].astype(float).round(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)


def in_order(table: "DataFrame", turn: "Series | int" = 0) -> "DataFrame":
    """The lines sorted by turn, then one op after the other in the order of reference.py."""
    orders = {
        "op": [*reference.OPS],
        "direction": ["forward", "backward", "both"],
        "clock": [measure.GPU_CLOCK, measure.HOST_CLOCK],
        "implementation": ["ours", *rivals.RIVALS],
    }
    order = table.assign(turn=turn)
    for name, values in orders.items():
        order[name] = order[name].map({value: place for place, value in enumerate(values)})
    return table.loc[order.sort_values(["turn", "clock", *KEY], kind="stable").index]


def read(path: Path) -> "DataFrame":
    """The CSV as `join` wrote it; an empty text is "", and so is what was not there."""
    import pandas

    texts = {*KEY, "version", "failure", "run", "date", *CONDITIONS} - {"cols", "rows"}
    table = pandas.read_csv(path, dtype=dict.fromkeys(texts, str))
    if "run" not in table:  # a table of an earlier release knows the day
        table = table.rename(columns={"date": "run"})
    return table.reindex(columns=COLUMNS).fillna(dict.fromkeys(texts, ""))


def _in_short(problem: BaseException) -> str:
    """Its first line, without a terminal's colours."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(problem)).strip().partition("\n")[0]
    return f"{type(problem).__name__}: {text[:120]}".strip(": ")


def say(text: str) -> None:
    print(f"{time.perf_counter() - _begun:6.1f} s  {text}", flush=True)


_begun = time.perf_counter()


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.split("\n")[0])
    parser.add_argument("--ops", nargs="+", choices=[*reference.OPS], default=[*reference.OPS])
    parser.add_argument("--cols", nargs="+", type=int, default=[*COLS])
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
    todo = [] if asked.no_host else list(host_cells(asked.ops))
    todo += cells(asked.ops, arguments.dtypes(asked.dtypes), asked.cols)
    say(f"{len(todo)} cells; compiling first")
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    late = compile_everything(todo)
    deadline = time.time() + asked.seconds - (time.perf_counter() - _begun)
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
        say(f"{left} cells are left: run again with --ops and --cols for them, and the CSV joins")
    if asked.csv == CSV:
        from lab import report

        for path in report.write(CSV):
            say(f"wrote {path}")
    return 0


def _measured(
    pool: ProcessPoolExecutor, todo: list[Cell], late: set[Cell], deadline: float
) -> Iterator[tuple[Cell, list[dict[str, object]] | None]]:
    """Each cell with its lines, as they come; without any if the deadline was before its turn.

    The host's time is taken with nobody beside.
    """
    on_host = [cell for cell in todo if cell.shape == HOST_SHAPE]
    on_gpus = [cell for cell in todo if cell.shape != HOST_SHAPE]
    for cell in on_host:
        yield cell, pool.submit(_measure, cell, cell in late, deadline).result()
    tasks = {pool.submit(_measure, cell, cell in late, deadline): cell for cell in on_gpus}
    for task in as_completed(tasks):
        yield tasks[task], task.result()


def _measure(cell: Cell, without_compile: bool, deadline: float) -> list[dict[str, object]] | None:
    if time.time() > deadline:
        return None
    measure_it = measure_host if cell.shape == HOST_SHAPE else measure_cell
    lines = measure_it(cell, conditions_here(), without_compile)
    torch.cuda.empty_cache()
    return lines


def _summary(lines: list[dict[str, object]]) -> str:
    shown = []
    for line in lines:
        figure = line.get("failure", f"{line.get('time_us', 0):.1f} us")
        if "percent_of_copy" in line:
            figure = f"{line['percent_of_copy']:.1f}%"
        shown.append(f"{line['implementation']} {figure}")
    return ", ".join(shown)


if __name__ == "__main__":
    sys.exit(main())
