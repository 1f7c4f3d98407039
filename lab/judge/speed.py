"""Times a submission beside the reference on a GPU, with a clock outside its process.

Rounds of three processes take turns (lab.judge.rounds): the submission's, the reference's, and one
that calls nothing, whose time is subtracted from both. The clock is in this process. Without a GPU
the time is lab.predict's, and is labelled as predicted.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from lab.gpus import gpu as gpus
from lab.judge.pipe import Pipe
from lab.judge.sandbox import threads_of
from lab.judge.task import Task

ROUNDS = 15
SETS = 16  # calls in a round, each with its own tensors; the first waits for the host
ELEMENTS = 1 << 25  # in the inputs of a call on a GPU
PREDICTED = 1 << 20  # the same for a predicted call
COLS = 4096
FASTER = 1.2  # limit on speed relative to a measured copy and to measured tensor cores
ROLES = ("submission", "reference", "nothing")


class Rejected(Exception):
    """Why a submission's time does not count."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def sizes_for(task: Task, elements: int) -> dict[str, int]:
    """Sizes for a call with about that many elements."""
    sizes = {"cols": 64 if task.op.sizes else COLS} if "cols" in task.letters else {}
    if "rows" not in task.letters:
        return sizes
    sizes["rows"] = 1
    while task.elements(sizes | {"rows": 2 * sizes["rows"]}) <= elements:
        sizes["rows"] *= 2
    return sizes


@dataclass(frozen=True)
class Floor:
    """The minimum work of a call: bytes, and operations of matrix products."""

    bytes: int
    operations: int

    @classmethod
    def of(cls, task: Task, sizes: dict[str, int], dtype: torch.dtype) -> Floor:
        """Count the floor on meta tensors."""
        small = task.draw(dict.fromkeys(sizes, 1), dtype, 0)
        known = task.known(sizes)
        given = {
            name: torch.empty(task.shape(name, known), dtype=t.dtype, device="meta")
            for name, t in small.items()
        }
        counted = FlopCounterMode(display=False)
        with counted:
            outputs = task.results(given)
        moved = sum(t.numel() * t.element_size() for t in (*given.values(), *outputs))
        return cls(moved, counted.get_total_flops())

    def seconds(self, gpu: gpus.Gpu | None, copy_gb_per_s: float, dtype: torch.dtype) -> float:
        """The time at a copy's rate, and at the tensor cores' rate if known."""
        least = self.bytes / (1e9 * copy_gb_per_s)
        if gpu and dtype != torch.float64:
            rate = max(gpu.tensor_tflops, gpu.warpgroup_tflops)
            rate /= 2 if dtype == torch.float32 else 1  # TF32
            least = max(least, self.operations / (1e12 * rate))
        return least / FASTER


def known_gpu(name: str) -> gpus.Gpu | None:
    """The constants of the GPU with this name, if they have been measured."""
    for it in gpus.names():
        if it.replace("_", " ").lower() in name.lower():
            return gpus.load(it)
    return None


def measured(
    start: Callable[[str, dict], Pipe],
    task: Task,
    dtype: torch.dtype,
    *,
    device: str,
    seed: int,
    seconds: float,
    builds: float,
    elements: int = ELEMENTS,
    rounds: int = ROUNDS,
    copy_gb_per_s: float | None = None,
) -> dict:
    """Seconds per call of a submission and of the reference.

    start: starts the process for a role, given the request for lab.judge.rounds. seconds, builds:
    limits for a round and for a start. copy_gb_per_s: rate of a copy on that GPU; measured if None.

    Raises Rejected if a round is wrong, or if the time is below the floor's.
    """
    sizes = sizes_for(task, elements)
    asked = {"sizes": sizes, "dtype": str(dtype).removeprefix("torch."), "sets": SETS}
    asked["device"] = device
    pipes = {role: start(role, asked) for role in ROLES}
    taken: dict[str, list[float]] = {role: [] for role in ROLES}
    later: dict[str, list[float]] = {role: [] for role in ROLES}
    dice = random.Random(f"{task.op.name} {seed} time")
    for role, pipe in pipes.items():
        _answer(role, pipe.line(time.monotonic() + builds))
    said = {"gpu": device}
    if copy_gb_per_s is None:
        said = _ask("reference", pipes["reference"], {"copy": 0}, builds)
        copy_gb_per_s = said["gb_per_s"]
    threads = 0
    for number in range(rounds + 1):
        value_seed, secret = dice.randrange(1 << 40), dice.randrange(1 << 40)
        order = ROLES[number % 3 :] + ROLES[: number % 3]
        sums = {}
        for role in order:
            _ask(role, pipes[role], {"prepare": value_seed}, seconds)
            if role == "submission":
                threads = threads or threads_of(pipes[role].process.pid)
            times = [time.perf_counter()]
            _ask(role, pipes[role], {"go": 0}, seconds)
            times.append(time.perf_counter())
            found = _ask(role, pipes[role], {"sums": secret}, seconds)
            times.append(time.perf_counter())
            if role == "submission" and device == "cuda":  # the simulator has threads of its own
                _no_more_threads(pipes[role], threads)
            sums[role] = found.get("sums")
            if number:  # the first round warms up
                taken[role].append(times[1] - times[0])
                later[role].append(times[2] - times[1])
        truth = _ask("reference", pipes["reference"], {"truth": secret}, builds)
        _compare(sums["submission"], truth, number)
    one = {role: _of_one(taken[role], taken["nothing"]) for role in ("submission", "reference")}
    one["submission"] += _worked_later(later["submission"], later["nothing"])
    floor = Floor.of(task, sizes, dtype)
    least = floor.seconds(known_gpu(said["gpu"]), copy_gb_per_s, dtype)
    where = ", ".join(f"{n} = {v}" for n, v in sizes.items())
    if one["submission"] < least:
        raise Rejected(
            "below the floor",
            f"{where}: {1e6 * one['submission']:.3g} us a call; {floor.bytes} bytes and"
            f" {floor.operations} operations take at least {1e6 * least:.3g} us here",
        )
    spread = statistics.quantiles(taken["submission"], n=4)
    return {
        "clock": "GPU, from outside, cold L2" if device == "cuda" else "CPU simulator",
        "gpu": said["gpu"],
        "sizes": sizes,
        "seconds": one["submission"],
        "spread": (spread[2] - spread[0]) / SETS,
        "reference": one["reference"],
        "floor": least,
    }


def _of_one(taken: list[float], nothing: list[float]) -> float:
    """Seconds of one call: those of a round minus its overhead, over the number of calls."""
    return (statistics.median(taken) - statistics.median(nothing)) / SETS


def _worked_later(sums: list[float], nothing: list[float]) -> float:
    """Extra seconds per call that its "sums" took, compared with the process that calls nothing.

    0 unless the difference exceeds the spread of the latter.
    """
    lower, _, upper = statistics.quantiles(nothing, n=4)
    more = statistics.median(sums) - statistics.median(nothing)
    return more / SETS if more > 2 * (upper - lower) else 0.0


def told(time: dict | None) -> str:
    """The time as a short text."""
    if time is None:
        return "time neither measured nor predicted"
    us = {n: f"{1e6 * v:.3g}" for n, v in time.items() if isinstance(v, float)}
    where = ", ".join(f"{n} = {v}" for n, v in time["sizes"].items())
    if time["clock"] == "predicted":
        said = f"{us['lower']} to {us['upper']} us predicted for {time['gpu']}"
        return f"{said}, not measured; the floor is {us['floor']} us; {where}"
    said = f"{us['seconds']} us on {time['gpu']}, the reference {us['reference']} us"
    return f"{said}, the floor {us['floor']} us; {where}"


def _ask(role: str, pipe: Pipe, what: dict, seconds: float) -> dict:
    pipe.send(json.dumps(what).encode() + b"\n")
    return _answer(role, pipe.line(time.monotonic() + seconds))


def _answer(role: str, line: bytes) -> dict:
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if isinstance(said, dict) and "error" not in said:
        return said
    why = said["error"] if isinstance(said, dict) else "its process ended"
    if role != "submission":
        raise RuntimeError(f"the judge's own process ({role}) failed: {why}")
    raise Rejected("raised" if isinstance(said, dict) else "crash", str(why).partition("\n")[0])


def _no_more_threads(pipe: Pipe, before: int) -> None:
    """Reject new threads: they could work before a call, or after it has returned."""
    if (now := threads_of(pipe.process.pid)) > before:
        raise Rejected("threads", f"its process has {now} threads; before its first call {before}")


def _compare(found: object, truth: dict, number: int) -> None:
    """found: untrusted, because it comes from the submission's process."""
    for i, (wanted, allowed) in enumerate(zip(truth["sums"], truth["allowed"], strict=True)):
        for j, (value, off) in enumerate(zip(wanted, allowed, strict=True)):
            try:
                mine = float(found[i][j])
            except (TypeError, IndexError, ValueError, KeyError):
                mine = float("nan")
            if not abs(mine - value) <= off:
                raise Rejected(
                    "wrong",
                    f"round {number}, call {i}: its outputs add up to {mine:.9g}, wanted"
                    f" {value:.9g} within {off:.3g}",
                )
