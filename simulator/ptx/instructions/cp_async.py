"""cp.async, without bulk."""

from __future__ import annotations

from simulator.ptx.rules import Rule, Use


def _copy(use: Use) -> str:
    """`[to], [from], size{, bytes to read}{, policy}`, or a predicate: ignore the source."""
    rest = [use[index] for index in range(2, len(use))]
    if use.groups["hint"]:
        rest = rest[:-1]
    size, read = rest[0], rest[-1]
    return f"$copy_async($shared({use[0]}), {use[1]}, {size}, {read});"


RULES = [
    Rule(
        r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?P<hint>\.L2::cache_hint)?"
        r"(?:\.L2::(?:64|128|256)B)?",
        _copy,
        "cp_async.h",
    ),
    Rule(
        r"cp\.async\.c[ag]\.shared(?:::cta)?\.global\.L2::(?:64|128|256)B(?P<hint>\.L2::cache_hint)?",
        _copy,
        "cp_async.h",
    ),
    Rule(r"cp\.async\.commit_group", "$commit_copies();", "cp_async.h"),
    Rule(r"cp\.async\.wait_group", "$wait_for_copies({0});", "cp_async.h"),
    Rule(r"cp\.async\.wait_all", "$wait_for_all_copies();", "cp_async.h"),
]
