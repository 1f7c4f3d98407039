"""Write docs/loop.md: ours beside plain torch.utils.cpp_extension.load, in seconds and in trouble.

    .venv/bin/python -m docs.programs.loop         everything, in one run: some ten minutes
    .venv/bin/python -m docs.programs.loop NAME    play the scenarios with NAME in their name

All that it writes is measured in one run on one machine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from statistics import median

import torch

from docs.programs.loop_seconds import BUILDS, STEPS, Seconds, Taken, measure, sides
from docs.programs.loop_survival import Verdict, play_all
from docs.programs.page import Part, cores, duration, table, write_csv
from toolchain import machine

PART = Part("loop.md", "docs.programs.loop")
SURVIVAL = "loop_survival.csv"
PLAIN = "plain, sm_90"

FASTER = 15  # how many times a build of ours is to be faster than plain's
RETURN, LIMIT = "return to an earlier source", 0.050


def main(only: str = "") -> None:
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)

    if only:
        play_all(say, only)
        return
    load = os.getloadavg()[0]
    seconds = {side.name: measure(side, say) for side in sides()}
    loaders, verdicts = play_all(say)
    parts = [
        conditions(load),
        "## Seconds",
        seconds_table(seconds),
        wanted_table(seconds),
        "## What it survives",
        summary(loaders, verdicts),
    ]
    write_csv(SURVIVAL, *verdict_rows(loaders, verdicts))
    PART.write("\n\n".join(filter(None, parts)))


def conditions(load: float) -> str:
    """What was measured on what."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    home = machine.cuda_home()
    nvcc = version([str(home / "bin/nvcc"), "--version"], r"release \S+, (\S+)") if home else "none"
    facts = [
        f"{cores()}, {gpu}",
        f"load average {load:.1f} when it began",
        version([machine.cxx(), "--version"], r".*"),
        f"nvcc {nvcc}",
        f"torch {torch.__version__}, Python {platform.python_version()}",
        f"{time.strftime('%d %B %Y')}",
    ]
    return "; ".join(facts) + "."


def version(command: list[str], pattern: str) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(pattern, said)
    return found[found.lastindex or 0]


def seconds_table(seconds: dict[str, Seconds]) -> str:
    """Medians, and of how many runs each is."""
    rows = [
        [name, *(cell(measured[step], step in BUILDS) for measured in seconds.values())]
        for step, name in STEPS.items()
    ]
    return table(["median (runs)", *seconds], rows, "lr")


def cell(times: list[Taken], must_build: bool) -> str:
    """Said as well: that a step compiled which need not, or did not which must."""
    told = f"{duration(middle(times))} ({len(times)})"
    if all(taken.built == must_build for taken in times):
        return told
    return f"{told}, **no build**" if must_build else f"{told}, **with a build**"


def middle(times: list[Taken]) -> float:
    return median(taken.seconds for taken in times)


def wanted_table(seconds: dict[str, Seconds]) -> str:
    """What was wanted of ours, and what this run reached; nothing where plain cannot be built."""
    plain = seconds.get(PLAIN)
    ours = {side: measured for side, measured in seconds.items() if side != PLAIN}
    if not plain:
        return ""
    rows = []
    for step in BUILDS:
        times = [middle(plain[step]) / middle(measured[step]) for measured in ours.values()]
        reached = [f"{value:.1f} times: {met(value >= FASTER)}" for value in times]
        rows.append([f"{STEPS[step]}: {FASTER} times faster than plain", *reached])
    back = [middle(measured[RETURN]) for measured in ours.values()]
    reached = [f"{duration(value)}: {met(value < LIMIT)}" for value in back]
    rows.append([f"{STEPS[RETURN]}: under {duration(LIMIT)}", *reached])
    return table(["wanted", *ours], rows, "lr")


def met(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def summary(loaders: tuple[str, ...], verdicts: dict[str, tuple[Verdict, ...]]) -> str:
    counts = [
        f"{loader} passes {sum(found[i].passed for found in verdicts.values())} of {len(verdicts)}"
        for i, loader in enumerate(loaders)
    ]
    return f"{'; '.join(counts)}: [{SURVIVAL}]({SURVIVAL})."


def verdict_rows(
    loaders: tuple[str, ...], verdicts: dict[str, tuple[Verdict, ...]]
) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of scenarios."""
    rows = []
    for name, found in verdicts.items():
        told = [f"{loader}: {v.told}" for loader, v in zip(loaders, found, strict=True) if v.told]
        outcomes = ["pass" if verdict.passed else "fail" for verdict in found]
        rows.append([name, *outcomes, "; ".join(told)])
    return ["scenario", *loaders, "what happened"], rows


if __name__ == "__main__":
    main(*sys.argv[1:])
