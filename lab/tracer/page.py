"""A trace as one page of HTML, which needs no server and no network: trace.html with its data."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.tracer.record import NO_FLIGHT, OTHER
from lab.tracer.text import short, spans

if TYPE_CHECKING:
    from lab.tracer.trace import Trace

HEIGHT = 760  # of the page within a notebook, in pixels
_HERE = Path(__file__).parent
# The kinds of a tensor's or an array's elements, as trace.js decodes them.
KINDS = {"float": "f", "double": "f", "half": "f16", "__half": "f16", "float16": "f16"}
KINDS |= {"bfloat16": "bf16", "__nv_bfloat16": "bf16", "bool": "bool", "char": "i"}
KINDS |= dict.fromkeys(("int", "int8", "int16", "int64", "short", "long", "long long"), "i")
KINDS |= dict.fromkeys(("uint8", "uint16", "uint32", "uint64", "unsigned", "size_t"), "u")
KINDS |= {"unsigned int": "u", "unsigned char": "u", "unsigned short": "u", "long int": "i"}
KINDS |= {"long unsigned int": "u", "short int": "i", "short unsigned int": "u"}


def page(trace: Trace) -> str:
    """The whole page."""
    facts, packed = _data(trace)
    text = (_HERE / "trace.html").read_text()
    data = json.dumps({"facts": facts, "packed": packed}).replace("<", "\\u003c")
    parts = {"TITLE": html.escape(f"{trace.kernel}: trace"), "DATA": data}
    parts["SCRIPT"] = "\n".join(
        (_HERE / name).read_text() for name in ("trace_data.js", "trace_panels.js", "trace.js")
    )
    return re.sub(r"@(TITLE|DATA|SCRIPT)@", lambda match: parts[match[1]], text)


def framed(trace: Trace) -> str:
    """The page in a frame of its own: its styles and a notebook's do not meet."""
    return (
        f'<iframe loading="lazy" srcdoc="{html.escape(page(trace))}"'
        f' title="trace of {html.escape(trace.kernel)}"'
        f' style="width: 100%; height: {HEIGHT}px; border: 1px solid rgba(128, 128, 128, 0.4)">'
        "</iframe>"
    )


def _data(trace: Trace) -> tuple[dict[str, Any], str]:
    """What the page is told in words, and its tables: columns, compressed."""
    columns = _columns(trace)
    scopes: dict[tuple[int, ...], int] = {}
    scope_of = [scopes.setdefault(tuple(scope), len(scopes)) for scope in trace.scopes]
    used, firsts = np.unique(trace.tables["steps"]["place"], return_index=True)
    order, used = used[np.argsort(firsts)].tolist(), used.tolist()
    files = list(dict.fromkeys(trace.lines[place][0] for place in order))  # the kernel's own first
    facts = {
        "what": trace.what,
        "kernel": trace.kernel,
        "blocks": trace.blocks,
        "grid": trace.grid,
        "extent": trace.threads_per_block,
        "steps": trace.steps,
        "spans": spans(trace),
        "isCut": trace.is_cut,
        "start": trace.start,
        "finding": trace.finding,
        "files": [{"name": name, "lines": trace.report.source(name)} for name in files],
        "places": [
            [files.index(trace.lines[p][0]), *trace.lines[p][1:], scope_of[p]]
            if p in set(used)
            else 0
            for p in range(max(used, default=-1) + 1)
        ],
        "scopes": list(scopes),
        "variables": trace.variables,
        "types": trace.types,
        "words": [short(_PRODUCT.sub(r"\1", word)) for word in trace.words],
        "products": {number: it for number, it in enumerate(map(_product, trace.words)) if it},
        "mbarriers": [
            trace.member(it) for it in np.unique(trace.tables["barriers"]["barrier"]).tolist()
        ],
        "regions": [
            _region(trace, number) | {"isMeant": _is_meant(trace, number, used)}
            for number in range(len(trace.regions))
        ],
        "findings": trace.findings(),
        "opened": trace.opened,
        "leftOut": trace.left_out,
        "columns": [[name, column.dtype.str[1:], len(column)] for name, column in columns.items()],
    }
    raw = b"".join(column.tobytes() + bytes(-column.nbytes % 8) for column in columns.values())
    return facts, base64.b64encode(zlib.compress(raw, 6)).decode()


# A product of tensor cores among the words: its shape, and the types of A and D, as
# simulator/checker/products.h numbers them.
_PRODUCT = re.compile(r"^(\S+) m(\d+)n(\d+)k(\d+) (\d+) (\d+)(?= at )")
_TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "f64", "s8", "u8", "s4", "u4", "b1", "f32", "s32")
_TYPES += ("e2m3", "e3m2", "e2m1", "e2m1")
_BITS = (16, 16, 32, 8, 8, 64, 8, 8, 4, 4, 1, 32, 32, 8, 8, 8, 4)


def _product(word: str) -> dict[str, Any] | None:
    """Shape and types of a product: m, n, k, the bits of an element of A, its type and D's."""
    if (found := _PRODUCT.match(word)) is None:
        return None
    m, n, k, a, d = map(int, found.groups()[1:])
    of = {"m": m, "n": n, "k": k, "bits": _BITS[a], "a": _TYPES[a], "d": _TYPES[d]}
    return of | {"ofWarpgroup": word.startswith("wgmma")}


def _flights(trace: Trace) -> dict[str, np.ndarray]:
    """Operations in flight, by warp: from, until, and their number; and changes of mbarriers."""
    it, changes = trace.tables["flights"], trace.tables["barriers"]
    key = np.stack([it["round"], it["until"], it["thread"] // np.uint32(32), it["word"]], 1)
    found, counts = np.unique(key.astype("u4"), axis=0, return_counts=True)
    return {
        "fRound": found[:, 0],
        "fUntil": np.minimum(found[:, 1], np.uint32(trace.steps)),
        "fWarp": found[:, 2],
        "fWord": found[:, 3],
        "fCount": counts.astype("u4"),
        **_tensor_work(trace),
        "mRound": changes["round"],
        "mBarrier": np.unique(changes["barrier"], return_inverse=True)[1].ravel().astype("u4"),
        "mThread": changes["thread"],
        "mWord": changes["word"],
        "mArriving": changes["arriving"],
        "mBytes": changes["bytes"].astype("i4"),
        "mEnded": changes["has_ended"],
        "mInit": changes["is_init"],
    }


def _tensor_work(trace: Trace) -> dict[str, np.ndarray]:
    """The users of each column of tensor memory, from the start until the wait has completed.

    A warp's access, which is not asynchronous, uses its columns in its own step.
    """
    it, flights = trace.tables["tensor"], trace.tables["flights"]
    ends = np.append(flights["until"], np.uint32(0))
    until = np.where(
        it["flight"] == NO_FLIGHT, it["round"], ends[np.minimum(it["flight"], len(flights))]
    )
    return {
        "nRound": it["round"],
        "nUntil": np.minimum(until, trace.steps).astype("u4"),
        "nThread": it["thread"],
        "nWord": it["word"],
        "nRegion": it["region"],
        "nIsRead": it["is_read"],
        "nFirst": it["first"],
        "nCount": it["count"],
    }


def _columns(trace: Trace) -> dict[str, np.ndarray]:
    """The steps of a warp's converged lanes; changes of variables; accesses; waits."""
    steps, changes = trace.tables["steps"], trace.tables["changes"]
    touches, waits, before = (trace.tables[name] for name in ("touches", "waits", "before"))
    warp = steps["thread"] // 32
    key = np.stack([steps["round"], warp.astype("u4"), steps["place"], steps["depth"]], 1)
    found, at = np.unique(key, axis=0, return_inverse=True)
    lanes = np.zeros(len(found), "u4")
    np.bitwise_or.at(lanes, at.ravel(), np.uint32(1) << (steps["thread"] % 32).astype("u4"))
    sizes = np.array([trace.types[kind][1] for _, kind, _ in trace.variables] or [0], "u4")
    by_step = np.argsort(steps["round"][changes["step"]], kind="stable")
    changes, changed = changes[by_step], trace.changed[by_step]
    is_other = touches["how"] == OTHER
    of_step = np.where(is_other, 0, touches["step"])
    when = np.where(is_other, touches["step"], steps["round"][of_step] if len(steps) else 0)
    who = np.where(is_other, 0xFFFF, steps["thread"][of_step] if len(steps) else 0)
    order = np.argsort(when, kind="stable")
    touches, when, who = touches[order], when[order], who[order]
    return {
        "rBlock": trace.tables["rounds"]["block"],
        "rNumber": trace.tables["rounds"]["number"],
        "gRound": found[:, 0],
        "gWarp": found[:, 1].astype("u2"),
        "gPlace": found[:, 2],
        "gDepth": found[:, 3].astype("u2"),
        "gLanes": lanes,
        "cRound": steps["round"][changes["step"]],
        "cThread": steps["thread"][changes["step"]],
        "cVariable": changed,
        "cBytes": _gathered(trace.bytes, changes["at"], sizes[changed]),
        "tRound": when.astype("u4"),
        "tThread": who.astype("u2"),
        "tHow": touches["how"],
        "tRegion": touches["region"],
        "tOffset": touches["offset"],
        "tSize": touches["size"],
        "tBytes": _gathered(trace.bytes, touches["at"], touches["size"]),
        "wRound": waits["round"],
        "wWarp": waits["warp"],
        "wWord": waits["word"],
        "wLanes": waits["lanes"],
        **_flights(trace),
        "bRegion": before["region"],
        "bOffset": before["offset"],
        "bSize": before["size"],
        "bBytes": _gathered(trace.bytes, before["at"], before["size"]),
    }


def _gathered(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes at these places, one stretch after the other."""
    sizes = sizes.astype("i8")
    ends = np.cumsum(sizes)
    begins = np.repeat(at.astype("i8") - (ends - sizes), sizes)
    return data[begins + np.arange(len(begins))]


def _region(trace: Trace, number: int) -> dict[str, Any]:
    """The memory to draw: its elements and their layout."""
    region = trace.regions[number]
    name = region["name"] or "unnamed memory"
    work = trace.tables["tensor"]
    work = work[work["region"] == number]
    if len(work):
        last = int((work["first"] + work["count"]).max())
        return {
            "name": name,
            "begin": str(region["begin"]),
            "of": region.get("of", ""),
            "bytes": region["size"],
            "shared": True,
            "barriers": False,
            "kind": "f",
            "size": 4,
            "shape": [128, 512],
            "columns": [int(work["first"].min()), last],  # that are used
        }
    layout = trace.report.layout_of({"name": region["name"], "bytes": region["size"]})
    touches = trace.tables["touches"]
    sizes = touches["size"][(touches["region"] == number) & (touches["how"] < OTHER)]
    if layout is not None:
        kind, size, shape = KINDS.get(layout.type, "u"), layout.size, list(layout.shape)
        if layout.type not in KINDS and (member := _member(trace.types, layout.type, size)):
            kind, size = member
            shape += [layout.size // size] if size < layout.size else []
        if layout.is_tensor and (0 in shape or layout.size * np.prod(shape) > region["size"]):
            shape = [region["size"] // size]
    else:
        size = int(min(sizes, default=4))
        said = _dynamic_type(trace) if region["shared"] else ""
        kind = KINDS.get(said, "f" if size in (4, 8) else "u")
        if region["shared"] and (most := trace.element_of(region)):
            kind, size = most
        shape = [region["size"] // max(size, 1)]
    barriers = trace.tables["barriers"]["barrier"]
    inside = (barriers >= region["begin"]) & (barriers < region["begin"] + region["size"])
    if size == 8 and np.any(inside):
        kind = "u"
    if size > 8 or size not in (1, 2, 4, 8):
        kind, shape = "u", [region["size"] // 4]
        size = 4
    return {
        "name": name,
        "begin": str(region["begin"]),
        "of": region.get("of", ""),
        "bytes": region["size"],
        "shared": region["shared"],
        "barriers": 8 * len(np.unique(barriers[inside])) == region["size"],  # and nothing else
        "kind": kind,
        "size": size,
        "shape": shape,
    }


def _is_meant(trace: Trace, number: int, places: list[int]) -> bool:
    """Whether the functions that run name a shared array, and not only the file's other kernels."""
    region = trace.regions[number]
    if not region["shared"] or np.any(trace.tables["touches"]["region"] == number):
        return True
    ends: dict[tuple[str, str], list[int]] = {}
    for place in places:
        file, line, function = trace.lines[place]
        ends.setdefault((file, function), []).append(line)
    said = "\n".join(
        line
        for (file, _), lines in ends.items()
        for line in trace.report.source(file)[max(0, min(lines) - 9) : max(lines)]
    )
    name = re.escape(region["name"])
    return not name.isidentifier() or re.search(rf"\b{name}\b", said) is not None


def _member(types: list[list[Any]], name: str, size: int) -> tuple[str, int] | None:
    """Kind and size of a structure's numbers, if they are all alike."""

    def numbers(kind: int) -> set[tuple[str, int]]:
        what, size, *more = types[kind]
        if what == "array":
            return numbers(more[0])
        if what == "struct":
            return {each for *_, member in more[1] for each in numbers(member)}
        return {(what, size)}

    for kind, it in enumerate(types):
        if it[0] == "struct" and it[1:3] == [size, name]:
            found = numbers(kind)
            return found.pop() if len(found) == 1 else None
    return None


def _dynamic_type(trace: Trace) -> str:
    """The element type of the dynamic shared array, as the source declares it."""
    pattern = r"extern\s+__shared__\s+(?:\w+\s*\([^)]*\)\s*)*((?:unsigned\s+)?\w+)\s+\w+\s*\[\s*\]"
    for file in {file for file, _, _ in trace.lines}:
        if found := re.search(pattern, "\n".join(trace.report.source(file))):
            return found[1]
    return ""
