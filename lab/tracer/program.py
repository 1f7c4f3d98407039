"""`python -m lab trace FILE.cu`: a program with a main(), traced: a time line, or a page."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import jitload
from lab.checker.program import check_program
from lab.tracer.record import Window
from lab.tracer.run import STEPS, traced
from lab.tracer.trace import Blocks, Trace


def trace_program(
    sources: list[str],
    flags: list[str],
    arguments: list[str],
    block: Blocks = 0,
    launch: int = 0,
    steps: int = STEPS,
    first: int = 0,
    around: int | None = None,
    finding: int | None = None,
) -> Trace:
    """As `lab.trace`, of a program.

    Raises: as `lab.trace` and `check_program` do.
    """
    checks = partial(check_program, sources, flags, arguments, traffic=False)
    window = Window(launch, spans=((first, first + steps),))
    return traced(sources[0], checks, block, window, around, finding)


def trace(words: list[str]) -> int:
    """Carry out the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab trace",
        description="Trace a block of a program's launch on the simulator.",
        epilog="Other options are the compiler's; what stands behind -- is for the program.",
    )
    parser.add_argument("source", nargs="+", metavar="FILE.cu")
    parser.add_argument("--block", default="0", help="its number, or X,Y,Z; several: 0/1")
    parser.add_argument("--launch", type=int, default=0, help="which, from 0 on; default: 0")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}")
    parser.add_argument("--first", type=int, default=0, help="the first step; default: 0")
    parser.add_argument("--around", type=int, help="a line: the steps around its first run")
    parser.add_argument("--finding", type=int, help="of the checker's, from 0: the steps around it")
    parser.add_argument("--at", type=int, metavar="LINE", help="show the values at this line")
    parser.add_argument("--thread", type=int, action="append", help="of this thread; default: 0")
    parser.add_argument("--html", metavar="PAGE", help="write the interactive page")
    split = words.index("--") if "--" in words else len(words)
    options, flags = parser.parse_known_args(words[:split])
    parts = [tuple(map(int, part.split(","))) for part in options.block.split("/")]
    blocks = [part[0] if len(part) == 1 else part for part in parts]
    block = blocks[0] if len(blocks) == 1 else blocks
    try:
        found = trace_program(
            *(options.source, flags, words[split + 1 :], block, options.launch),
            *(options.steps, options.first, options.around, options.finding),
        )
    except (jitload.CompileError, jitload.MissingTool, OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.html:
        print(found.save(options.html))
    elif options.at is not None:
        print(found.at(options.at, options.thread or [0]))
    else:
        print(found)
    return 0
