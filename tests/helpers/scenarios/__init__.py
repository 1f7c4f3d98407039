"""What a loader survives: one list of scenarios for the tests and for docs/loop.md.

A scenario is a function of a Scene. Its docstring begins with its title, a row of the page's table.
It plays with real processes and real compilers, asserts what it wants, with what happened instead
as the message, and returns what is worth telling, or nothing. The tests play each with our loader;
`python -m docs.programs.loop` plays each with plain torch.utils.cpp_extension.load, too.
"""

import inspect
from collections.abc import Callable

from tests.helpers.scenarios import caches, edits, processes
from tests.helpers.scenarios.scene import Scene

Scenario = Callable[[Scene], str | None]

SCENARIOS: list[Scenario] = [  # in the order in which they are told
    processes.killed,
    processes.stopped,
    processes.crowd,
    processes.flags,
    processes.threads,
    processes.stale_lock,
    caches.truncated_library,
    caches.zeroed_library,
    caches.read_only,
    caches.cannot_be_made,
    caches.full_disk,
    caches.shared,
    caches.no_locks,
    edits.header_edited,
    edits.header_removed,
    edits.header_shadowed,
    edits.header_added,
    edits.deleted,
    edits.clock,
    edits.path,
    edits.upgraded_compiler,
    edits.missing_compiler,
    edits.upgraded_torch,
    processes.forked_workers,
    processes.spawned_workers,
    edits.reloads,
    caches.prune,
    caches.open_to_others,
]


def title(scenario: Scenario) -> str:
    """The first line of a scenario's docstring."""
    return inspect.getdoc(scenario).splitlines()[0]
