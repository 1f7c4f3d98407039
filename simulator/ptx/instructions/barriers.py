"""Barriers of a block and of a cluster, and grids that depend on each other."""

from __future__ import annotations

from simulator.ptx.rules import Rule, Use


def _call(function: str) -> object:
    def code(use: Use) -> str:
        return f"${function}({', '.join(use[index] for index in range(len(use)))});"

    return code


def _reduce(use: Use) -> str:
    """`d, a, b, p` or `d, a, p`: counts the true predicates, or combines them by and/or."""
    vote, count = use[-1], use[2] if len(use) == 4 else "0"
    return f"{use[0]} = $bar_red_{use.groups['op']}({use[1]}, {count}, {vote});"


def _both(pattern: str, code: object) -> list[Rule]:
    return [
        Rule(rf"bar(?:\.cta)?\.{pattern}", code, "barriers.h"),
        Rule(rf"barrier(?:\.cta)?\.{pattern}", code, "barriers.h"),
    ]


RULES = [
    *_both(r"sync(?:\.aligned)?", _call("bar_sync")),
    *_both(r"arrive(?:\.aligned)?", _call("bar_arrive")),
    *_both(r"red\.(?P<op>popc|and|or)(?:\.aligned)?\.(?:u32|pred)", _reduce),
    Rule(
        r"barrier\.cluster\.arrive(?:\.(?:release|relaxed))?(?:\.aligned)?",
        "$cluster_barrier_arrive();",
        "clusters.h",
    ),
    Rule(
        r"barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?",
        "$cluster_barrier_wait();",
        "clusters.h",
    ),
    # Kernels run one after another, so the primary kernel that a secondary one waits for has ended.
    Rule(r"griddepcontrol\.(?:launch_dependents|wait)", ";", "values.h"),
]
