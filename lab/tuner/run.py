"""Try values of a kernel's constants, and find the fastest.

A constant is declared as tunable where it stands, in one line, and is an ordinary constant to nvcc:

    #include "tunable.h"
    constexpr int kThreads = TUNABLE(kThreads, 256);

    tuning = lab.tune(lambda: softmax(x), kThreads=[128, 256, 512], kVectors=[2, 4, 8])
    tuning              # the best of them, a table, a heat map and parallel coordinates
    tuning.keep()       # from now on builds for this GPU have these constants
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

import jitload
from lab.measure.case import Results
from lab.measure.clocks import disturbances, warn_if_disturbed
from lab.measure.progress import progress
from lab.measure.timing import GPU_CLOCK, environment
from lab.tuner.builds import Builders
from lab.tuner.candidate import Candidate
from lab.tuner.judge import Truth
from lab.tuner.measures import Calls, Measure, Predicted, Times
from lab.tuner.model import search_among
from lab.tuner.search import all_of, search
from lab.tuner.space import Configuration, Rule, Space
from lab.tuner.tuning import Tuning

Say = Callable[[str], None]

RUNS = 300  # up to so many configurations are all built, however few are run
FINALISTS = 3  # of a search: the best ones are timed once more, side by side
BATCHES = 10  # of a search, at least: it would learn too little from fewer


def tune(
    call: Callable[..., Results] | Calls,
    *,
    kernel: jitload.Kernel | None = None,
    truth: Truth | dict[str, Truth] = None,
    rule: Rule | None = None,
    runs: int | None = RUNS,
    spills: bool = False,
    threads: str | int | None = None,
    least_occupancy: float = 0.0,
    seed: int = 0,
    **constants: Iterable[int],
) -> Tuning:
    """Build a kernel with other values of its constants, and find those that are the fastest.

        tuning = lab.tune(lambda: layer_norm(x, w, b), kForwardVectors=[2, 4, 8, 16])

    call       a function that calls the kernel and returns a tensor or a tuple of them; or several
               by name, of which all count the same. Constants among its parameters are given to it,
               as in `def call(kThreads): ...` for a grid that Python computes.
    kernel     what `jitload.load` returned, or %%cu made; by default the one loaded kernel that
               declares all of these constants as TUNABLE
    truth      the true results in float64, or a function that returns them; a dict of them by name
               for several calls. Without it the results of the kernel as it stands are the truth.
    rule       a function of constants that says which go together, such as
               lambda kThreads, kRows: kThreads * kRows <= 1024. Others are not even built.
    runs       how many configurations are run at most; None runs all of them. Where there are more,
               a model of their costs says which; of more than 300, Optuna's sampler says which are
               built and run.
    spills     True also runs configurations that spill more registers to memory than the kernel as
               it stands, by what ptxas says of the build
    threads    of a block, as a number or the constant that it is: configurations none of whose
               kernels can be launched so, or which stay below `least_occupancy` (0 to 1), are not
               run
    seed       of the search
    constants  values to try of each constant, whole numbers

    What is built is built on all processors side by side: on a GPU all configurations, up to 300,
    since what ptxas says of them spares runs. A configuration is then called once, and one whose
    results are wrong, or that raises, is not timed. The others are timed in turns, with a cold L2,
    beside the kernel as it stands; those that are 10% slower than the best after a round leave.

    On a CPU nothing is timed, for the simulator's time says nothing of a GPU's: what counts there
    is the time that `lab.predict` predicts for the GPU that LAB_GPU names, by default an H200. With
    nvcc it knows registers and instructions; without, little but memory. Configurations in which
    `lab.check` finds an error are refused.

    Warns as `lab.time_call` does. Raises TypeError or ValueError that names the argument, and
    ModuleNotFoundError where a search needs Optuna (pip install optuna).
    """
    calls = _calls(call)
    space = Space.of(constants, rule)
    kernel = _kernel(kernel, list(space.values))
    declared = declared_values(kernel)
    measure: Measure
    if kernel.target == "cuda":
        in_block = _threads_of(threads, space)
        measure = Times(kernel, calls, declared, spills, in_block, least_occupancy)
    else:
        measure = Predicted(kernel, calls, declared)
    every = all_of(space)
    runs = len(every) if runs is None else _positive("runs", runs)
    standing = {name: declared.get(name) for name in space.values}
    tried: list[Candidate] = []
    if measure.notice:
        print(f"{kernel.name}: {measure.notice}; {len(every)} configurations", flush=True)
    steps = 3 * len(every) if len(every) <= min(runs, RUNS) and not measure.prunes else None
    with Builders() as builders, progress(steps) as say:
        batch = max(1, min(builders.count, runs // BATCHES))
        measure.begin(_truths(truth, calls))

        def costs(configurations: list[Configuration]) -> list[float]:
            candidates = _built(measure, configurations, builders, say)
            tried.extend(candidates)
            _run(measure, [each for each in candidates if not each.refused], say)
            return [candidate.cost for candidate in candidates]

        if len(every) > max(runs, RUNS):
            search(space, runs, batch, costs, seed, standing)
            measure.cost(_best_of(tried), say)
        elif len(left := _worth_running(measure, every, tried, builders, say)) <= runs:
            costs(left)
        else:
            search_among(space, left, runs, 1 if measure.prunes else batch, costs, standing)
            measure.cost(_best_of(tried), say)
    warn_if_disturbed(measure.held)
    device = torch.device(kernel.target)
    facts = {
        **environment(device, [GPU_CLOCK] if device.type == "cuda" else ()),
        "kernel": kernel.name,
        "constants": list(space.values),
        "configurations": len(every),
        "calls": list(calls),
        "shapes": measure.shapes,
        "unit": measure.unit,
        "predicted_for": measure.predicted_for,
        "disturbances": disturbances(measure.held),
    }
    return Tuning(kernel, measure.standing, tried, list(calls), facts)


def _best_of(candidates: list[Candidate]) -> list[Candidate]:
    """The finalists: a search times each at another time, so the best may only be lucky."""
    return [each for each in sorted(candidates, key=lambda it: it.rank) if each.ratios][:FINALISTS]


def _worth_running(
    measure: Measure,
    configurations: list[Configuration],
    refused: list[Candidate],
    builders: Builders,
    say: Say,
) -> list[Configuration]:
    """The configurations whose builds allow a run; the others are added to `refused`."""
    if not measure.prunes:
        return configurations
    candidates = _built(measure, configurations, builders, say)
    refused += [candidate for candidate in candidates if candidate.refused]
    return [candidate.constants for candidate in candidates if not candidate.refused]


def _built(
    measure: Measure, configurations: list[Configuration], builders: Builders, say: Say
) -> list[Candidate]:
    """Build configurations, and inspect the results."""
    candidates = [Candidate(configuration) for configuration in configurations]
    recipes = [measure.recipes(configuration) for configuration in configurations]
    said = builders.build([it for each in recipes for it in each], lambda: say("built"))
    for candidate, of_it in zip(candidates, recipes, strict=True):
        say(f"looking at {candidate}")
        if wrong := [said[recipe] for recipe in of_it if said[recipe]]:
            candidate.refused = wrong[0].splitlines()[0]
        else:
            measure.look_at(candidate)
    return candidates


def _run(measure: Measure, candidates: list[Candidate], say: Say) -> None:
    """Judge candidates, and measure the cost of those that are right."""
    for candidate in candidates:
        say(f"running {candidate}")
        measure.judge(candidate)
    measure.cost([candidate for candidate in candidates if not candidate.refused], say)


# ---- what is given


def _calls(call: object) -> Calls:
    calls = call if isinstance(call, dict) else {"call": call}
    if not calls:
        raise ValueError("call: the dict is empty; wanted is a function, or several by name")
    for name, each in calls.items():
        if not isinstance(name, str) or not callable(each):
            raise TypeError(
                f"call: {name!r} is a {type(each).__name__}; wanted is a function without"
                " arguments but constants, such as lambda: softmax(x), or several of them by name"
            )
    return calls


def _truths(truth: object, calls: Calls) -> dict[str, Truth]:
    if not isinstance(truth, dict):
        return dict.fromkeys(calls, truth)
    if unknown := truth.keys() - calls.keys():
        raise ValueError(f"truth: there is no call {unknown.pop()!r}; there is {', '.join(calls)}")
    return {name: truth.get(name) for name in calls}


def _kernel(kernel: jitload.Kernel | None, names: list[str]) -> jitload.Kernel:
    if kernel is not None and not isinstance(kernel, jitload.Kernel):
        raise TypeError(
            f"kernel: {kernel!r} is of type {type(kernel).__name__}; wanted is what jitload.load"
            " returned, or %%cu made"
        )
    known = [kernel] if kernel else jitload.loaded()
    found = [each for each in known if set(names) <= set(_tunables(each))]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{each.name} ({each.recipe.sources[0]})" for each in found)
        raise ValueError(
            f"kernel: {listed} all declare {', '.join(names)}; give the one that is meant"
        )
    there = {each.name: ", ".join(_tunables(each)) for each in known}
    listed = "; ".join(f"{name}: {constants or 'none'}" for name, constants in there.items())
    name = next((it for it in names if all(it not in _tunables(each) for each in known)), names[0])
    raise ValueError(
        f"{name}: no loaded kernel declares {', '.join(names)} as tunable ({listed or 'none'});"
        f' wanted are two lines such as #include "tunable.h" and constexpr int {name} ='
        f" TUNABLE({name}, 256);"
    )


def _tunables(kernel: jitload.Kernel) -> dict[str, str]:
    return jitload.tunables("\n".join(lines) for lines in kernel.build.sources().values())


def declared_values(kernel: jitload.Kernel) -> Configuration:
    """The values that constants have in the source, as far as they are plain numbers."""
    return {name: int(it) for name, it in _tunables(kernel).items() if it.isdecimal()}


def _threads_of(threads: object, space: Space) -> Callable[[Configuration], int | None]:
    if threads is None or isinstance(threads, int):
        return lambda configuration: threads
    if threads not in space.values:
        raise ValueError(
            f"threads: {threads!r}; wanted is a number, or one of {', '.join(space.values)}"
        )
    return lambda configuration: configuration[threads]


def _positive(name: str, value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: {value!r}; wanted is a positive whole number, or None")
    return value
