"""A program with a printf behind each of its statements, and what a trace shows there."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lab

EVERY = 7  # of the threads of block 0 every so many print
MOST = 8  # elements of an array that are printed
_KEYWORDS = (
    r"(for|while|if|else|do|return|break|continue|goto|case|default|struct|class|enum|union)"
)
_NO_STATEMENT = re.compile(
    rf"^({_KEYWORDS}\b|(using|static|extern|typedef|template)\b|__shared__|#|//)"
)
_LAMBDA = re.compile(r"\]\s*\([^)]*\)\s*(mutable\s*)?\{")  # of its own names
_SET = re.compile(r"^(\w+)((?:\[[^\[\]=]*\])+) [-+*/]?= ")
_LINE = re.compile(r"@(\d+) (\d+) (\S+) (\S+) (\S+)$", re.MULTILINE)


def _code(text: str) -> list[str]:
    """The lines without comments and strings."""
    text = re.sub(r"/\*.*?\*/", lambda it: re.sub(r"[^\n]", " ", it[0]), text, flags=re.DOTALL)
    return [re.sub(r'//.*|"(\\.|[^"])*"', "", line).rstrip() for line in text.splitlines()]


def statements(text: str) -> set[int]:
    """The lines that are one whole statement, in the braces of a function that is no constexpr."""
    found, open_, before, head = set(), [], "{", ""
    for number, line in enumerate(_code(text), 1):
        words = line.strip()
        if words.startswith("#") or not words:
            continue
        is_whole = (
            words.endswith(";")
            and not _NO_STATEMENT.match(words)
            and before in "{};"
            and not re.search(r"\b(constexpr|switch|asm)\b", words)
            and not _LAMBDA.search(words)
            and all(words.count(a) == words.count(b) for a, b in ("()", "{}", "[]"))
        )
        if is_whole and open_ and not any(open_):
            found.add(number)
        for letter in words:
            if letter == "{":
                is_other = re.search(r"\b(struct|class|enum|union|constexpr)\b", head)
                is_space = re.search(r"\bnamespace\b|extern\s*$", head)
                open_.append(None if is_space else bool(is_other))
                head = ""
            elif letter == "}":
                if open_:
                    open_.pop()
                head = ""
            elif letter == ";":
                head = ""
            else:
                head += letter
        head += " "
        before = words[-1]
    return found


def _scalars(name: str, kind: int, types: list) -> list[str]:
    """The expressions of the numbers in a variable that the program can print."""
    match types[kind]:
        case ["f" | "i" | "u" | "bool" | "f16" | "bf16", *_]:
            return [name]
        case ["array", _, of, count] if types[of][0] not in ("array", "struct"):
            return [
                it for i in range(min(count, MOST)) for it in _scalars(f"{name}[{i}]", of, types)
            ]
        case ["struct", _, _, members] if {it[0] for it in members} <= set("xyzw"):
            return [
                it for member, _, of in members for it in _scalars(f"{name}.{member}", of, types)
            ]
    return []


def _named(trace: lab.Trace, file: str) -> dict[int, dict[str, int]]:
    """What a trace's threads can name at each line of a file that they have run, and its type."""
    names: dict[int, dict[str, int]] = defaultdict(dict)
    for place in np.unique(trace.tables["steps"]["place"]).tolist():
        name, line, _ = trace.lines[place]
        if Path(name).name != file:
            continue
        for variable in trace.scopes[place]:
            of, kind, declared = trace.variables[variable]
            if declared <= line and not re.match(r"simulator|this$|__", of):
                names[line][of] = kind
    return names


def _shared(trace: lab.Trace) -> set[str]:
    return {it["name"] for it in trace.regions if it["shared"]}


def with_printf(text: str, traces: Sequence[lab.Trace], file: str) -> str:
    """The source with a printf of what a thread can name behind each statement that one of the
    traces has run."""
    allowed, lines, code = statements(text), text.splitlines(), _code(text)
    names: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for trace in traces:
        for line, known in _named(trace, file).items():
            if line in allowed:
                names[line] |= {of: _scalars(of, it, trace.types) for of, it in known.items()}
    shared = set().union(*map(_shared, traces))
    for line, known in names.items():
        said = [(each, f"double({each})") for of in known for each in known[of]]
        it = _SET.match(code[line - 1].strip())
        if it and it[1] in shared:
            at = f"double((const char*)&({it[1]}{it[2]}) - (const char*)&{it[1]})"
            said += [(f"&{it[1]}", at), (f"*{it[1]}", f"double({it[1]}{it[2]})")]
        rank = "int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
        printed = "".join(
            f'printf("@%d 0 {line} {name} %a\\n", {rank}, {value});' for name, value in said
        )
        where = f"blockIdx.x + blockIdx.y + blockIdx.z == 0 && {rank} % {EVERY} == 0"
        lines[line - 1] = f"{code[line - 1]} if ({where}) {{ {printed} }}"
    return "#include <cstdio>\n#line 1\n" + "\n".join(lines) + "\n"


def _shown(values: dict[str, Any], name: str) -> float:
    found = values[re.match(r"\w+", name)[0]]
    for member, index in re.findall(r"\.(\w+)|\[(\d+)\]", name):
        found = found[member] if member else found[int(index)]
    return float(found)


def _stored(trace: lab.Trace, thread: int, name: str, step: int) -> tuple[int, float]:
    """What a thread has last written to a shared array up to a step: where, and what."""
    touches, steps = trace.tables["touches"], trace.tables["steps"]
    numbers = [i for i, it in enumerate(trace.regions) if it["shared"] and it["name"] == name]
    mine = touches[np.isin(touches["how"], (1, 2)) & np.isin(touches["region"], numbers)]
    mine = mine[(steps["thread"][mine["step"]] == thread) & (steps["round"][mine["step"]] <= step)]
    last = mine[-1]
    data = trace.bytes[last["at"] : last["at"] + last["size"]].tobytes()
    kind = trace.report.layout_of({"name": name, "bytes": trace.regions[last["region"]]["size"]})
    code = {("float", 4): "f4", ("double", 8): "f8", ("__half", 2): "f2"}
    as_ = code.get((kind.type if kind else "float", len(data)), f"i{len(data)}")
    return int(last["offset"]), float(np.frombuffer(data, as_)[0])


def printed_values(said: str) -> dict[tuple[int, int, str], list[float]]:
    """By thread, line and name."""
    found: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for thread, _, line, name, value in _LINE.findall(said):
        found[int(thread), int(line), name].append(float.fromhex(value))
    return found


def compare(
    trace: lab.Trace, file: str, said: str, other: str
) -> tuple[int, list[tuple[int, int, str, list[float], list[float]]]]:
    """How many values were compared, and what is not equal: thread, line, name, shown, printed.

    said, other: what two builds print which differ in what variables hold before they are set:
        where these differ, a variable has no value yet.
    """
    wanted, others = printed_values(said), printed_values(other)
    known, shared = _named(trace, file), _shared(trace)
    compared, unequal = 0, []
    is_whole = len(trace.report.launches) == 1 and not trace.is_cut
    cache: dict[tuple[int, int], dict[str, Any]] = {}
    runs: dict[tuple[int, int], list[int]] = {}
    for (thread, line, name), values in wanted.items():
        of = re.search(r"\w+", name)[0]
        if of not in (shared if name[0] in "&*" else known[line]):
            continue  # it is of another trace
        if (thread, line) not in runs:
            runs[thread, line] = trace.runs_of(line, thread, file)
        steps = runs[thread, line]
        if len(steps) != len(values) and (is_whole or len(steps) > len(values)):
            unequal.append((thread, line, name, [float(len(steps))], [float(len(values))]))
            continue
        for step, value, again in zip(steps, values, others[thread, line, name], strict=False):
            if value != again and not (math.isnan(value) and math.isnan(again)):
                continue
            if name[0] in "&*":
                got = _stored(trace, thread, name[1:], step)[name[0] == "*"]
            else:
                if (thread, step) not in cache:
                    cache[thread, step] = trace.values(thread, step)
                got = _shown(cache[thread, step], name)
            compared += 1
            if got != value and not (math.isnan(got) and math.isnan(value)):
                unequal.append((thread, line, name, [got], [value]))
    return compared, unequal
