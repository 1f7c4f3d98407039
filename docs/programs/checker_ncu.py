"""What the checker counts beside what an H200's counters say, for docs/checker.md.

    python -m docs.programs.checker_ncu
    python -m docs.programs.checker_ncu --counters   # prints all that ncu says of shared memory
                                                     # and of copies in bulk

On a machine with a GPU, ncu and g++. Each access pattern of checker_patterns.py runs once under ncu
and once under lab.check. The process exits with 1 if a count differs.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from pandas import DataFrame

import lab
from docs.programs.checker_matrices import MATRIX_PATTERNS, MatrixPattern, matrix_call
from docs.programs.checker_patterns import PATTERNS, Pattern, call
from docs.programs.page import Part, table, write_csv
from lab.profiler import ncu

PART = Part("checker.md", "docs.programs.checker_ncu")
CSV = "checker_ncu.csv"
HEAD = ["pattern", "memory", "access", "bytes per lane", "checker", "ncu", "verdict"]

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
    ("shared", "ldmatrix"): (
        "smsp__inst_executed_op_ldsm.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
    ("shared", "stmatrix"): (
        "smsp__inst_executed_op_shared_stsm.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    ("global", "bulk read"): ("lts__t_sectors_srcunit_tex_op_read.sum",),
    ("global", "tensor read"): ("lts__t_sectors_srcunit_tex_op_read.sum",),
    ("global", "bulk write"): ("lts__t_sectors_srcunit_tex_op_write.sum",),
}
# More that an atomic of shared memory may be made of.
OF_ATOMICS = (
    "smsp__inst_executed_op_shared_atom_dot_alu.sum",
    "smsp__inst_executed_op_shared_atom_dot_cas.sum",
    *COUNTERS["shared", "read"],
    *COUNTERS["shared", "atomic"],
)
# More that a matrix instruction or a copy in bulk may be counted by.
OF_MATRICES = (
    *COUNTERS["shared", "ldmatrix"],
    *COUNTERS["shared", "stmatrix"],
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_bank_reads.sum",
    "l1tex__data_bank_writes.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum",
)

ALL_PATTERNS = [*PATTERNS, *MATRIX_PATTERNS]


def main() -> int:
    """Write the CSV and the page's totals; 1 if any count differs."""
    if sys.argv[1:] == ["--run"]:
        run()
        return 0
    if sys.argv[1:] == ["--counters"]:
        print_counters()
        return 0
    rows = list(compared())
    write_csv(CSV, HEAD, rows)
    PART.write(summary(conditions(), rows))
    return int(any(verdict == "differs" for *_, verdict in rows))


def summary(measured_on: str, rows: list[list[str]]) -> str:
    """How many patterns of each memory are counted alike, and the lines of those that differ."""
    memories = Counter(memory for _, memory, *_ in rows)
    differing = [row for row in rows if row[-1] == "differs"]
    differ = Counter(memory for _, memory, *_ in differing)
    totals = [[memory, count, count - differ[memory]] for memory, count in memories.items()]
    parts = [measured_on, table(["memory", "patterns", "same count"], totals, "lr")]
    if differing:
        parts += ["Those that differ:", table(HEAD[:-1], (row[:-1] for row in differing), "lllrrr")]
    return "\n\n".join(parts)


def run() -> None:
    """Each pattern once, in order: what ncu watches."""
    for pattern in ALL_PATTERNS:
        function, *args = call_of(pattern, "cuda")
        function(*args)
    torch.cuda.synchronize()


def call_of(pattern: Pattern | MatrixPattern, device: str) -> tuple:
    return (matrix_call if isinstance(pattern, MatrixPattern) else call)(pattern, device)


def print_counters() -> None:
    """What ncu says of each pattern of shared memory, and of each copy."""
    wanted = dict.fromkeys((*OF_ATOMICS, *OF_MATRICES))
    for pattern, gpu in zip(ALL_PATTERNS, counters(wanted), strict=True):
        if pattern.memory == "shared" or isinstance(pattern, MatrixPattern):
            counts = (f"{name.partition('.')[0]} {gpu[name]}" for name in wanted if gpu[name])
            print(f"{pattern}: {', '.join(counts)}")


def counters(more: Iterable[str] = ()) -> list[dict[str, int]]:
    """ncu's counters of each launch, in order; 0 for those that it does not know."""
    metrics = sorted({*more, *(name for names in COUNTERS.values() for name in names)})
    known = ncu.metrics()
    asked = [name for name in metrics if name.partition(".")[0] in known] if known else metrics
    if unknown := sorted({*metrics} - {*asked}):
        print(f"ncu does not know {', '.join(unknown)}", file=sys.stderr)
    kernels = "regex:(global|shared|tensor|bulk)_(read|write|change)|atomics"
    options = ["--metrics", ",".join(asked), "--kernel-name", kernels]
    with tempfile.TemporaryDirectory(prefix="ncu-") as folder:
        report = Path(folder, "patterns.ncu-rep")
        ran = ncu.run([sys.executable, "-m", "docs.programs.checker_ncu", "--run"], report, options)
        ran.complain()
        launches = ncu.launches(report, by_line=False)
    if len(launches) != len(ALL_PATTERNS):
        raise RuntimeError(
            f"ncu saw {len(launches)} launches; wanted are {len(ALL_PATTERNS)}\n{ran.output}"
        )
    # a counter that a launch does not have is empty
    return [{name: int(launch.number(name) or 0) for name in metrics} for launch in launches]


def compared() -> Iterator[list[str]]:
    """A line of the CSV for each pattern; it ends on "same" or "differs"."""
    for pattern, gpu in zip(ALL_PATTERNS, counters(), strict=True):
        function, *args = call_of(pattern, "cpu")
        traffic = lab.check(function, *args).traffic
        rows = traffic[
            (traffic["memory"] == pattern.memory)
            & (traffic["access"] == getattr(pattern, "direction", pattern.access))
        ]
        ours = of_checker(pattern, rows)
        theirs = tuple(gpu[name] for name in COUNTERS[pattern.memory, pattern.access])
        yield line(pattern, ours, theirs)


def of_checker(pattern: Pattern | MatrixPattern, rows: DataFrame) -> tuple[int, ...]:
    """Requests and sectors, of a copy sectors; or requests, passes and conflicts."""
    names = ["sectors"] if isinstance(pattern, MatrixPattern) else ["requests", "sectors"]
    if pattern.memory == "shared":
        names = ["requests", "passes", "bank_conflicts"]
    return tuple(int(rows[name].sum()) for name in names)


def conditions() -> str:
    return (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}. Global memory: requests and"
        " sectors; for bulk and tensor copies, sectors. Shared memory: requests, passes"
        " (wavefronts) and bank conflicts."
    )


def line(
    pattern: Pattern | MatrixPattern, ours: tuple[int, ...], theirs: tuple[int, ...]
) -> list[str]:
    counts = [", ".join(map(str, counts)) for counts in (ours, theirs)]
    verdict = "same" if ours == theirs else "differs"
    return [pattern.what, pattern.memory, pattern.access, str(pattern.size), *counts, verdict]


if __name__ == "__main__":
    sys.exit(main())
