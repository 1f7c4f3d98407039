"""What the checker counts beside what an H200's counters say, for docs/checker.md.

    python -m docs.programs.checker_ncu
    python -m docs.programs.checker_ncu --counters   # prints all that ncu says of shared memory

On a machine with a GPU, ncu and g++. Each access pattern of checker_patterns.py runs once under ncu
and once under lab.check. The process exits with 1 if a count differs.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator

import torch
from pandas import DataFrame

import lab
from docs.programs.checker_patterns import PATTERNS, Pattern, call
from docs.programs.page import Part, table

PART = Part("checker.md", "docs.programs.checker_ncu")
HEAD = ["pattern", "memory", "access", "bytes a lane", "checker", "ncu", ""]

# What of ncu's counters corresponds to requests and cost of a pattern.
COUNTERS = {
    ("global", "read"): (
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    ),
    ("global", "write"): (
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    ),
    ("global", "atomic"): (
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    ),
    ("shared", "read"): (
        "smsp__inst_executed_op_shared_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
    ("shared", "write"): (
        "smsp__inst_executed_op_shared_st.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    ("shared", "atomic"): (
        "smsp__inst_executed_op_shared_atom.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    ),
}
# More that an atomic of shared memory may be made of.
OF_ATOMICS = (
    "smsp__inst_executed_op_shared_atom_dot_alu.sum",
    "smsp__inst_executed_op_shared_atom_dot_cas.sum",
    *COUNTERS["shared", "read"],
    *COUNTERS["shared", "atomic"],
)


def main() -> int:
    """Write the table; 1 if any count differs."""
    if sys.argv[1:] == ["--run"]:
        run()
        return 0
    if sys.argv[1:] == ["--counters"]:
        print_counters()
        return 0
    rows = list(compared())
    PART.write(f"{conditions()}\n\n{table(HEAD, (row for row, _ in rows), 'lllrrrl')}")
    return int(not all(same for _, same in rows))


def run() -> None:
    """Each pattern once, in order: what ncu watches."""
    for pattern in PATTERNS:
        function, *args = call(pattern, "cuda")
        function(*args)
    torch.cuda.synchronize()


def print_counters() -> None:
    """What ncu says of each pattern of shared memory."""
    for pattern, gpu in zip(PATTERNS, counters(OF_ATOMICS), strict=True):
        if pattern.memory == "shared":
            counts = (f"{name.partition('.')[0]} {gpu[name]}" for name in OF_ATOMICS if gpu[name])
            print(f"{pattern}: {', '.join(counts)}")


def counters(more: Iterable[str] = ()) -> list[dict[str, int]]:
    """ncu's counters of each launch, in order."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    metrics = sorted({*more, *(name for names in COUNTERS.values() for name in names)})
    command = [
        *(ncu, "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(metrics)),
        *("--kernel-name", "regex:(global|shared)_(read|write|change)|atomics"),
        *(sys.executable, "-m", "docs.programs.checker_ncu", "--run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    start = done.stdout.find('"ID"')
    if start < 0:
        raise RuntimeError(f"ncu said:\n{done.stdout}{done.stderr}")
    launches = [row for row in csv.DictReader(io.StringIO(done.stdout[start:])) if row["ID"]]
    if len(launches) != len(PATTERNS):
        raise RuntimeError(f"ncu saw {len(launches)} launches; wanted are {len(PATTERNS)}")
    return [{name: count(row[name]) for name in metrics} for row in launches]


def count(text: str) -> int:
    """Of "1,056"; a counter that a launch does not have is empty."""
    return int(float(text.replace(",", "") or 0))


def compared() -> Iterator[tuple[list[str], bool]]:
    """A line of the table for each pattern, and whether both counted the same."""
    for pattern, gpu in zip(PATTERNS, counters(), strict=True):
        function, *args = call(pattern, "cpu")
        traffic = lab.check(function, *args).traffic
        rows = traffic.query("memory == @pattern.memory and access == @pattern.access")
        ours = of_checker(pattern, rows)
        theirs = tuple(gpu[name] for name in COUNTERS[pattern.memory, pattern.access])
        yield line(pattern, ours, theirs), ours == theirs


def of_checker(pattern: Pattern, rows: DataFrame) -> tuple[int, ...]:
    """Requests and sectors; or requests, passes and conflicts."""
    names = ["requests", "sectors"]
    if pattern.memory == "shared":
        names = ["requests", "passes", "bank_conflicts"]
    return tuple(int(rows[name].sum()) for name in names)


def conditions() -> str:
    return (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}. Global memory: requests and"
        " sectors. Shared memory: requests, passes (wavefronts) and bank conflicts."
    )


def line(pattern: Pattern, ours: tuple[int, ...], theirs: tuple[int, ...]) -> list[str]:
    counts = [", ".join(map(str, counts)) for counts in (ours, theirs)]
    verdict = "same" if ours == theirs else "differs"
    return [pattern.what, pattern.memory, pattern.access, str(pattern.size), *counts, verdict]


if __name__ == "__main__":
    sys.exit(main())
