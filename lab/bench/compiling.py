"""Processes that see one GPU each, and parallel compilation in them; measuring then finds the
results in the caches.
"""

import contextlib
import multiprocessing
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from lab import rivals
from lab.bench import quiet
from lab.bench.cells import Cell
from lab.bench.product import Product, Rows, module_of

COMPILERS = 14  # processes per GPU; each holds the tensors of one cell
COMPILE_SECONDS = 150  # total limit for torch.compile


# ---- processes, each of which sees one GPU


def gpus() -> list[str]:
    """The GPUs that this process may use, in CUDA_VISIBLE_DEVICES notation."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def processes(count: int, locks: Path | None = None) -> ProcessPoolExecutor:
    """`count` processes per GPU. locks: a folder, if they take turns on the GPU (`quiet`)."""
    context = multiprocessing.get_context("spawn")
    turns = context.SimpleQueue()
    for gpu in gpus() * count:
        turns.put(gpu)
    return ProcessPoolExecutor(len(gpus()) * count, context, _see_one_gpu, (turns, locks))


def processes_to_compile() -> int:
    """The number of processes per GPU that have a core to compile on."""
    return min(COMPILERS, max(len(os.sched_getaffinity(0)) // len(gpus()), 1))


def _see_one_gpu(turns: multiprocessing.SimpleQueue, locks: Path | None) -> None:
    gpu = os.environ["CUDA_VISIBLE_DEVICES"] = turns.get()
    if locks:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        quiet.share(locks / f"{gpu}.lock")


# ---- compiling on all cores, into the caches that measuring reads


def compile_everything(todo: list[Cell | Product]) -> set[Cell]:
    """Compile our kernels, and torch.compile's for every cell, in parallel processes.

    Products are left out: torch.compile times whole kernels to choose among them, and caches the
    choice, so it has to run alone.

    Returns the cells that torch.compile did not finish within COMPILE_SECONDS: some wide rows take
    minutes. It also picks launches by timing them, which the other processes disturb; that choice
    is discarded, and made again, alone, when the cell is measured.
    """
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # for each process
    pool = processes(processes_to_compile())
    _build_in(pool, todo)
    say(f"our kernels are there; torch.compile has {COMPILE_SECONDS} s")
    compiled = [cell for cell in todo if isinstance(cell, Cell | Rows)]
    slowest_first = sorted(compiled, key=lambda cell: (cell.direction == "forward", -cell.cols))
    tasks = {pool.submit(_compile, cell): cell for cell in slowest_first}
    with contextlib.suppress(TimeoutError):
        for number, task in enumerate(as_completed(tasks, COMPILE_SECONDS), 1):
            if problem := task.exception():
                say(f"[{number}/{len(tasks)}] compiling {tasks[task]}: {in_short(problem)}")
            elif number % 12 == 0 or number == len(tasks):
                say(f"[{number}/{len(tasks)}] compiled")
    late = {cell for task, cell in tasks.items() if not task.done()}
    for process in list(pool._processes.values()) if late else ():
        process.terminate()  # it would go on compiling while we measure
    pool.shutdown(cancel_futures=True)
    del os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    for picked in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        picked.unlink()
    return late


def build_kernels(todo: list[Cell | Product]) -> None:
    """Compile our kernels only, in parallel processes."""
    with processes(processes_to_compile()) as pool:
        _build_in(pool, todo)


def _build_in(pool: ProcessPoolExecutor, todo: list[Cell | Product]) -> None:
    names = list(dict.fromkeys(cell.name for cell in todo))
    for build in [pool.submit(_build, name) for name in names]:
        build.result()


def _build(name: str) -> None:
    module_of(name)


def _compile(cell: Cell) -> None:
    case = cell.case()
    rival = rivals.RIVALS["compile"](cell.op)
    with rival.first_call():
        case.step(rival)()
    del case
    torch.cuda.empty_cache()


# ---- messages


def in_short(problem: BaseException) -> str:
    """The first line of the message, without terminal colours."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(problem)).strip().partition("\n")[0]
    return f"{type(problem).__name__}: {text[:120]}".strip(": ")


def say(text: str) -> None:
    print(f"{since_start():6.1f} s  {text}", flush=True)


def since_start() -> float:
    """Seconds since the start of the run."""
    return time.perf_counter() - _begun


_begun = time.perf_counter()
