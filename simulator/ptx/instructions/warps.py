"""What the lanes of a warp do together: shuffles, votes, matches, reductions, elections."""

from __future__ import annotations

from simulator.ptx.rules import Rule, Use


def _shuffle(use: Use) -> str:
    """`d|p, a, b, c, mask`; p tells whether the source lane lies within the segment."""
    mode = use.groups["mode"]
    is_pair = use.operand(0).kind == "pair"
    rest = [use[index] for index in range(1 + is_pair, len(use))]
    mask = rest[3] if len(rest) > 3 else "$full_mask"
    predicate = f"{use[1]} = simulator_shuffled.__ptx_is_within; " if is_pair else ""
    return (
        f"{{ const auto simulator_shuffled = $shuffle_{mode}({rest[0]}, {rest[1]}, {rest[2]},"
        f" {mask}); {use[0]} = simulator_shuffled.__ptx_value; {predicate}}}"
    )


def _elect(use: Use) -> str:
    return (
        f"{{ const unsigned simulator_leader = $elect({use[2]}); {use[0]} = simulator_leader;"
        f" {use[1]} = simulator_leader == $lane_id(); }}"
    )


def _match_all(use: Use) -> str:
    if use.operand(0).kind != "pair":
        return (
            f"{{ int simulator_all; {use[0]} = __match_all_sync({use[2]}, {use[1]},"
            " &simulator_all); }"
        )
    return (
        f"{{ int simulator_all; {use[0]} = __match_all_sync({use[3]}, {use[2]}, &simulator_all);"
        f" {use[1]} = simulator_all != 0; }}"
    )


def _reduce_floats(use: Use) -> str:
    op, keeps_nan = use.groups["op"], use.groups["nan"] is not None
    nan = "~0u" if keeps_nan == (op == "max") else "0u"
    value = f"{use[1]} & 0x7fffffff" if use.groups["abs"] else use[1]
    return f"{use[0]} = $float_of_key(__reduce_{op}_sync({use[2]}, $key_of_float({value}, {nan})));"


RULES = [
    Rule(r"shfl(?:\.sync)?\.(?P<mode>up|down|bfly|idx)\.b32", _shuffle, "warps.h"),
    Rule(r"vote\.sync\.ballot\.b32", "{0} = __ballot_sync({2}, {1});", "warps.h"),
    Rule(r"vote\.sync\.any\.pred", "{0} = __any_sync({2}, {1}) != 0;", "warps.h"),
    Rule(r"vote\.sync\.all\.pred", "{0} = __all_sync({2}, {1}) != 0;", "warps.h"),
    Rule(r"vote\.sync\.uni\.pred", "{0} = $vote_uniform({1}, {2});", "warps.h"),
    Rule(r"match\.any\.sync\.b(?:32|64)", "{0} = __match_any_sync({2}, {1});", "warps.h"),
    Rule(r"match\.all\.sync\.b(?:32|64)", _match_all, "warps.h"),
    Rule(
        r"redux\.sync\.(?P<op>add|min|max)\.(?P<type>[us]32)",
        "{0} = __reduce_{op}_sync({2}, ${type}({1}));",
        "warps.h",
    ),
    Rule(
        r"redux\.sync\.(?P<op>and|or|xor)\.b32",
        "{0} = __reduce_{op}_sync({2}, unsigned({1}));",
        "warps.h",
    ),
    Rule(
        r"redux\.sync\.(?P<op>min|max)(?P<abs>\.abs)?(?P<nan>\.NaN)?\.f32",
        _reduce_floats,
        "warps.h",
    ),
    Rule(r"activemask\.b32", "{0} = __activemask();", "warps.h"),
    Rule(r"bar\.warp\.sync", "__syncwarp({0});", "warps.h"),
    Rule(r"elect\.sync", _elect, "warps.h"),
    # Only the checker uses a warp's number of registers.
    Rule(r"setmaxnreg\.inc\.sync\.aligned\.u32", "$set_registers({0}, true);", "registers.h"),
    Rule(r"setmaxnreg\.dec\.sync\.aligned\.u32", "$set_registers({0}, false);", "registers.h"),
]
