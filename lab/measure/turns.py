"""Times of calls that take turns on a GPU, or on its host, over and over again.

Power, temperature and the clock decide how fast tensor cores are, and all three drift. Calls timed
one after the other are therefore measured under different conditions. Here each turn takes about
20 ms, and every call has one turn per round, in an order that differs from round to round: drift
affects all of them alike.

A turn is a CUDA graph of many calls, so that a slow host does not count. A call that cannot be
captured in a graph is called as often, and its time may be the host's. L2 is not flushed between
calls: for a cold L2, let the calls go through more memory than it holds.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from lab.measure.clocks import Watch
from lab.measure.timing import (
    CPU_CLOCK,
    HOST_CLOCK,
    TURNS_CLOCK,
    Timing,
    quantiles,
    seconds_on_host,
)

ROUNDS = 9
SECONDS = 0.02  # of a turn, about
MOST_CALLS = 500  # of a turn

Step = Callable[[], object]


@dataclass(frozen=True)
class Player:
    """A call that takes turns with others.

    turn: runs all calls of a turn.
    calls: how many there are in a turn.
    captured: whether they are one CUDA graph.
    step: one call, kept because a graph reads what the call holds (a backward pass what its forward
        pass saved) and does not hold it itself.
    """

    turn: Step
    calls: int = 1
    captured: bool = False
    step: Step | None = None


def prepare(start: Callable[[], Step], device: torch.device) -> Player:
    """Prepares a call for its turns.

    start: returns the call to time. It runs on the stream on which the call is captured; a backward
        pass needs this, because its kernels run on the stream of its forward pass.

    Raises what `start` and the first calls raise.
    """
    if device.type != "cuda":
        step = start()
        step()
        return Player(step)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        step = start()
        step()
        calls = _calls_of_a_turn(step)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                step()
    except Exception:  # calls that cannot be captured raise various errors
        torch.cuda.synchronize(device)
        return Player(_called_on(stream, step, calls), calls)
    return Player(graph.replay, calls, captured=True, step=step)


def take_turns(
    players: dict[str, Player], device: torch.device, rounds: int = ROUNDS
) -> tuple[dict[str, Timing], dict[str, Exception]]:
    """The time of one call of each player, and the errors of those that failed in a turn.

    Median and quartiles over the rounds; the first round does not count.
    """
    watches = {name: Watch(device) for name in players}

    def turn_of(name: str) -> float:
        with watches[name]:
            return _seconds(players[name].turn, device) / players[name].calls

    times, failures = _in_turns(players, turn_of, rounds)
    clock = TURNS_CLOCK if device.type == "cuda" else CPU_CLOCK
    return {
        name: Timing(*quantiles(taken), clock, watches[name].held) for name, taken in times.items()
    }, failures


def take_turns_on_host(
    calls: dict[str, Step], count: int, rounds: int = ROUNDS
) -> tuple[dict[str, Timing], dict[str, Exception]]:
    """The same for the time that the host is busy with one call; a turn is `count` calls.

    A host has no steady clock either, and other programs run on it.
    """
    times, failures = _in_turns(calls, lambda name: seconds_on_host(calls[name], count), rounds)
    return {name: Timing(*quantiles(taken), HOST_CLOCK) for name, taken in times.items()}, failures


def _in_turns(
    names: Iterable[str], turn_of: Callable[[str], float], rounds: int
) -> tuple[dict[str, list[float]], dict[str, Exception]]:
    """The seconds of all turns but the first, and the errors of those that failed in a turn.

    Each round has its own order, the same in every run; they take turns at being the first.
    At the power cap an H200's clock swings within half a second: with one order for all rounds, one
    kernel in 18 places had times that differed by 4%.
    """
    drawn = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in names}
    failures: dict[str, Exception] = {}
    for number in range(rounds + 1 if times else 0):
        others = [*times]
        first = others.pop(number % len(others))
        for name in (first, *drawn.sample(others, len(others))):
            if name in failures:
                continue
            try:
                times[name].append(turn_of(name))
            except Exception as failure:
                failures[name] = failure
    return {name: taken[1:] for name, taken in times.items() if name not in failures}, failures


def _calls_of_a_turn(step: Step) -> int:
    """The number of calls that take SECONDS, by the faster of two calls."""
    seconds = min(_seconds(step, torch.device("cuda")) for _ in range(2))
    return max(1, min(MOST_CALLS, round(SECONDS / max(seconds, 1e-6))))


def _called_on(stream: torch.cuda.Stream, step: Step, calls: int) -> Step:
    def turn() -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(calls):
                step()
        torch.cuda.current_stream().wait_stream(stream)

    return turn


def _seconds(call: Step, device: torch.device) -> float:
    if device.type != "cuda":
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return 1e-3 * start.elapsed_time(end)
