"""What is wrong with a call: the recorder's findings as rows, each with a sentence."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pandas import DataFrame

from lab.checker.elements import Elements
from lab.checker.places import Places

COLUMNS = [
    *("kind", "severity", "hazard", "kernel", "file", "line", "via", "caller_file", "caller_line"),
    *("access", "tensor", "byte", "element", "size"),
    *("block", "thread", "other_access", "other_file", "other_line", "other_block"),
    *("other_thread", "allocated", "freed", "address", "launch", "count", "message"),
]


class NotEnded(TimeoutError):
    """A checked program runs for too long; the findings so far are reported."""


class Crashed(RuntimeError):
    """The host code of a checked program did something that ends a process."""


PAST = ("past the end of a local array", "past the end of an array")
HOSTS = ("host access", "unsynchronised")  # kinds that only host code can cause
STANDING = ["block", "doing", "file", "line", "count", "threads"]
WARP = 32
AT_SITE = "(site)"  # in place of a file: the line is a site's number

# What to do about each kind of finding.
BLOCKS = (
    " __syncthreads() does not wait for other blocks: use an atomic, or launch a kernel for each"
    " step."
)
HINTS = {
    "race": "No barrier, no meeting of the warp and no atomic orders these two accesses.",
    "race between streams": "Record an event after the first and have the other stream wait for it"
    " (cudaStreamWaitEvent), or synchronise between these two calls.",
    "out of bounds": "Compare the index with the size before the access.",
    "freed memory": "Free it when the kernels that use it have ended.",
    "integer division": "On a GPU the result is any number: compare the divisor before.",
    "wild call": "The function's address was never set, or it is one of the host's.",
    "uninitialised": "Nobody has written what is read here: shared memory, locals and new tensors"
    " begin with any values. Write it first, and let a barrier stand between.",
    "unwritten": "Some elements are never written: look at the last block, and at early returns.",
    "misaligned": "An access of so many bytes must stand on a multiple of as many: test the address"
    " before vectors are used, or clone() a view before the call.",
    "divergent barrier": "A barrier may stand in a branch or loop only if all threads of the block"
    " take it alike: take it out.",
    "asynchronous race": "Wait for the copy or the product before its memory is used, and have"
    " all who use the memory come to a barrier before it is asked for again.",
    "missing proxy fence": "fence.proxy.async after the access, and then the barrier, before the"
    " copy or the product is asked for.",
    "matrix descriptor": "The stride byte offset leads from eight rows to the next eight.",
    "missing cluster barrier": "barrier.cluster.arrive and barrier.cluster.wait between the two,"
    " tcgen05.alloc and tcgen05.dealloc.",
    "tensor memory kept": "One warp frees what it has allocated, tcgen05.dealloc, before the block"
    " ends.",
    "tensor memory": "Columns are allocated by one warp, used, and freed once by one warp.",
    "tensor memory lanes": "Add the first lane of the warp to the address:"
    " threadIdx.x / 32 % 4 * 32 << 16.",
    "scale factors": "Copy 32 rows of 16 bytes for each 128 rows or columns, by tcgen05.cp"
    " .32x128b.warpx4, to columns of their own.",
    "missing tcgen05 fence": "tcgen05.fence::before_thread_sync, the barrier, and after it"
    " tcgen05.fence::after_thread_sync in the thread that goes on.",
    "cta_group": "All instructions of a kernel on tensor memory have the same cta_group.",
    "mbarrier scope": "mbarrier.arrive.release.cluster, and mbarrier.try_wait.acquire.cluster.",
    "cluster launch control": "Wait for the answer, and ask no more once it says that nothing was"
    " canceled.",
    "tensor memory in use": "Products and copies are waited for at the mbarrier of tcgen05.commit,"
    " loads and stores by tcgen05.wait::ld and ::st and a barrier of those who use the columns.",
    "mbarrier in use": "Initialise it once, before the loop; or mbarrier.inval before it is"
    " initialised again.",
    "wrong parity": "The first phase of an mbarrier has parity 0, the next 1, and so on by turns.",
    "mbarrier not visible": "Initialise it in one thread; then fence.mbarrier_init, and a barrier"
    " of all who use it.",
    "expect_tx": "The bytes that are announced in a phase are those of all copies that tell it.",
    "arrival count": "mbarrier.init says how many arrive in each phase.",
    "named barrier": "All who come to a barrier give the same count, of whole warps.",
    "register in use": "Wait with wgmma.wait_group or tcgen05.wait::ld before registers are used.",
    "missing wgmma fence": "wgmma.fence after the registers have been written, before the product.",
    "refused launch": "CUDA would refuse it too.",
    "refused call": "It does nothing, and returns this error: a program has to ask for it.",
    "host copy": "The work is the kernels': leave in the device's memory what they need",
    "host access": "Only kernels may use it: bring it to the host with cudaMemcpy, or allocate it"
    " with cudaMallocManaged.",
    "host overrun": "The sizes differ: sizeof and size() * sizeof(T) say how many bytes there are.",
    "host crash": "It is the program's own code, not a kernel: what its launches did until then is"
    " told. A memory error of the host is found by -fsanitize=address, or by valgrind.",
    "unsynchronised": "It may still be under way: call cudaDeviceSynchronize() before the host uses"
    " this memory.",
    "timeout": "Look for a loop whose end never comes. If the kernels only take long, give"
    " lab.check more seconds=, or smaller tensors.",
    "inactive lane": "The value of a lane that takes no part in a shuffle is undefined.",
}
# Out of bounds, and far from all known memory.
UNKNOWN = (
    "A wild pointer; or a tensor's that the call was not given: pass it as an argument. Or an index"
    " that has overflowed: of int, r * cols passes 2^31; take int64_t."
)


def rows(
    data: dict[str, Any], places: Places, elements: Elements, raised: Exception | None
) -> list[dict[str, Any]]:
    """A row for each faulty pair of lines, and one for an exception that the call raised."""
    found = _merged(
        _finding(it, data, places, elements)
        for it in data["findings"]
        if it["kind"] not in HOSTS or places.is_hosts_own(it["place"])
    )
    found = _together(_without_wrong_indices(found))
    if raised is None or any(row["kind"] == "timeout" for row in found):  # this made it raise
        return found
    row = _raised(raised, places)
    if isinstance(raised, Crashed):
        for it in found:
            if it["kind"] == "host overrun" and f"{it['file']}:{it['line']}" in row["message"]:
                it["message"] += ": the program ended here"
                return found
            if it["kind"] == row["kind"]:
                return found
    places_found = {(it["kind"], it["line"]) for it in found}
    return found if (row["kind"], row["line"]) in places_found else [*found, row]


def standing(data: dict[str, Any], places: Places) -> list[dict[str, Any]]:
    """Where the threads stood when the time ran out; those that ran first come first."""
    rows = []
    kernel = data["launches"][-1]["kernel"] if data["launches"] else ""
    for block in data["stood"]:
        for it in block["threads"]:
            file, line = places.users_file(it["file"]) or it["file"], it["line"]
            if it["library"]:
                file, line = places.at(it["library"], it["offset"], kernel)
            elif file == AT_SITE:
                file, line, _ = places.sites[line]
            place = {"block": tuple(block["block"]), "doing": it["doing"]}
            place |= {"file": file, "line": line, "count": it["count"], "threads": it["threads"]}
            rows.append(place)
    return sorted(rows, key=lambda row: row["doing"] != "runs")


def name_of(region: dict[str, Any]) -> str:
    """A tensor's name, or the size of the allocation."""
    return region["name"] or f"allocation of {region['bytes']} bytes"


def title(row: dict[str, Any]) -> str:
    """The kind of a finding, with a race's hazard, and a remark if it is no error."""
    hazard = f" ({row['hazard']})" if row["hazard"] else ""
    return (
        f"{row['kind']}{hazard}" if row["severity"] == "error" else f"note: {row['kind']}{hazard}"
    )


def who(row: dict[str, Any]) -> str:
    """The thread that made an access; "" if there was none."""
    if not isinstance(row["access"], str) or not row["access"] or row["kind"] == "unwritten":
        return ""
    return f"kernel {row['kernel']}, block {row['block']}, thread {row['thread']}"


def memory(row: dict[str, Any]) -> str:
    """Where the memory of a finding comes from; "" if unknown."""
    known = isinstance(row["allocated"], str) and row["allocated"]
    return f"{row['tensor']}: {row['allocated']}" if known else ""


# What to do about a race whose message says its cause, by words of that.
SAME_VALUE = "both write the same value"
RACES = {
    SAME_VALUE: "The value is the same, whoever writes last: if that is meant,"
    " nothing needs to change. An atomic says it plainly.",
    "an atomic whose scope is its block": "Give the atomic the scope of the device: the function"
    " without _block, or thread_scope_device.",
    "only one of the two threads holds the lock": "Have every thread that uses this memory take"
    " the same lock.",
    "no fence comes": "__threadfence() after the lock is taken, and before it is given back.",
    "a fence of the lock has the scope of its block": "__threadfence() in place of"
    " __threadfence_block(): the lock is other blocks', too.",
}


def hint_for(row: dict[str, Any]) -> str | None:
    """What to do about a finding."""
    if row.get("other_access") == "declaration":
        return "Give it a value where it is declared."
    if row["kind"] == "out of bounds" and "passed 2^31" in row["message"]:
        return "Compute the index in 64 bits: size_t(row) * cols."
    if row["kind"] == "out of bounds" and re.search("the host has|of the host$", row["message"]):
        return "A kernel uses the device's memory: cudaMalloc and cudaMemcpy, or cudaMallocManaged."
    if row["kind"] == "misaligned" and (
        needed := re.search(r"multiple of (\d+) b", row["message"])
    ):
        return f"Declare the memory with alignas({needed[1]}), and round offsets up to that."
    if row["kind"] == "race" and (causes := [it for it in RACES if it in row["message"]]):
        question = _without_block_index(row) if causes[0] == SAME_VALUE else ""
        return RACES[causes[0]] + question
    if row["kind"] == "race" and _is_in_warp(row):
        return (
            "Lanes of a warp do not run in step, and volatile does not order them: __syncwarp()"
            " between these lines, or __syncthreads() if other warps use this memory, too."
        )
    if row["kind"] == "race" and row["tensor"]:
        is_in_block = row["block"] == row["other_block"]
        way = " Put __syncthreads() between them." if is_in_block else BLOCKS
        return HINTS["race"] + way + _without_block_index(row)
    if row["kind"] == "host overrun" and row["message"].startswith("the host"):
        return HINTS["out of bounds"]
    if row["kind"] == "host access" and "declared at" in memory(row):
        return (
            "Only kernels may use a __device__ variable: cudaMemcpyFromSymbol and"
            " cudaMemcpyToSymbol copy it; or declare it __managed__."
        )
    is_known = isinstance(row["tensor"], str) or row["access"] == "index"
    is_known |= row["kind"] != "out of bounds" or row["message"].endswith(PAST)
    return HINTS.get(row["kind"]) if is_known else UNKNOWN


def _without_block_index(row: dict[str, Any]) -> str:
    """A question about a race of equal threads of two blocks at one line; "" for other races."""
    is_same = row["thread"] == row["other_thread"] and row["line"] == row["other_line"]
    if not is_same or row["block"] == row["other_block"]:
        return ""
    return " Both are the same thread of their block: does the index need blockIdx?"


def _is_in_warp(row: dict[str, Any]) -> bool:
    """Whether both sides of a race are lanes of one warp."""
    thread, other = row["thread"], row["other_thread"]
    return row["block"] == row["other_block"] and thread // WARP == other // WARP


def told(threads: DataFrame) -> list[str]:
    """A line for each group of threads that stood together; blocks with equal groups share it."""
    alike: dict[tuple, list[tuple]] = {}
    for row in threads.to_dict("records"):
        group = tuple(row[name] for name in ("file", "line", "doing", "count", "threads"))
        alike.setdefault(group, []).append(row["block"])
    lines = []
    for (file, line, doing, count, ranks), blocks in alike.items():
        which = f"block {blocks[0]}" if len(blocks) == 1 else f"{len(blocks)} blocks"
        which += f", the first {blocks[0]}" if len(blocks) > 1 else ""
        place = f"{Path(file).name}:{line}: " if line else ""
        lines.append(f"{which}: {place}{doing}: {count} thread{'s' * (count > 1)} ({ranks})")
    return lines


def _finding(
    it: dict[str, Any], data: dict[str, Any], places: Places, elements: Elements
) -> dict[str, Any]:
    place, other = it["place"], it["other"]
    launches = data["launches"]
    file, line, via = places.of(place, it["message"])
    if it["from"]:
        file, line = places.first_of(it["from"])
    row = {
        "kind": "out of bounds" if it["kind"] in ("index", "array end") else it["kind"],
        "severity": it["severity"],
        "hazard": it["hazard"] or _hazard(it),
        "kernel": launches[it["launch"]]["kernel"] if launches else "",
        "file": file,
        "line": line,
        "via": via,
        **_caller(place, places),
        "access": place["access"],
        "size": it["size"],
        "block": tuple(place["block"]),
        "thread": place["thread"],
        "address": it["address"],
        "launch": it["launch"],
        "count": it["count"],
        "message": it["message"],
    }
    if it["region"] >= 0:
        region, byte = data["regions"][it["region"]], it["address"] - it["begin"]
        row |= {"tensor": name_of(region), "byte": byte, "element": elements.name(region, byte)}
        if it["kind"] == "misaligned" and (
            view := elements.view(region, it["address"], it["size"])
        ):
            name, layout = view
            byte = it["address"] - layout.address
            row |= {"tensor": name, "byte": byte, "element": name + layout.at(byte)}
            row["view"] = layout.offset
        launch = launches[it["launch"]] if launches else None
        row["allocated"] = places.made(region, it["made_by"], launch)
        row["freed"] = places.of_callers(it["freed_by"])
    if other["access"]:
        file, line, _ = places.of(other, "")
        if it["other_from"]:
            file, line = places.first_of(it["other_from"])
        row |= {
            "other_access": other["access"],
            "other_file": file,
            "other_line": line,
            "other_block": tuple(other["block"]),
            "other_thread": other["thread"],
        }
    elif it["kind"] in ("deadlock", "named barrier"):
        for row["other_file"], row["other_line"] in places.named_in(it["message"])[1:2]:
            row["other_access"] = "wait"
    elif it["kind"] == "timeout":
        for stood in standing(data, places)[:1]:
            row |= {name: stood[name] for name in ("file", "line", "block")}
    elif it["column"]:
        row |= places.index(file, line, it["column"])
    if it["kind"] == "out of bounds" and it["message"].isdigit():
        row["index"] = places.product_at(file, line)
    row["message"] = places.spelled_out(_sentence(it, row, data))
    return row


def _caller(place: dict[str, Any], places: Places) -> dict[str, Any]:
    """The line of the kernel from which the accessing function was called, if any."""
    file, line = places.callers[place["site"]] if place["site"] >= 0 else ("", 0)
    return {"caller_file": file, "caller_line": line} if line else {}


# The columns in which a finding names lines: its own, the caller's, and the other access's.
ENDS = [("file", "line"), ("caller_file", "caller_line"), ("other_file", "other_line")]


def _without_wrong_indices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep only the most specific finding for a line: an access out of a tensor's bounds, then an
    index that is certainly wrong, then an access past the end of an array."""
    bounds = [row for row in rows if row["kind"] == "out of bounds"]
    place = operator.itemgetter("file", "line")
    indices = [row for row in bounds if row["access"] == "index"]
    ends = [row for row in bounds if row["message"].endswith(PAST)]
    certain = {place(row) for row in indices if row["severity"] == "error"}
    past = {place(row) for row in ends}
    accesses = {place(row) for row in bounds if row not in indices and row not in ends}

    def is_told(row: dict[str, Any]) -> bool:
        if row in ends:
            return place(row) in certain
        meant = not row["severity"] or (row["severity"] == "note" and place(row) in past)
        return row in indices and (meant or place(row) in accesses)

    return [row for row in rows if not is_told(row)]


def _merged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for a pair of lines, in either order and however often the lines are compiled."""
    merged: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        ends = (row["file"], row["line"]), (row.get("other_file"), row.get("other_line"))
        key = row["kind"], row.get("tensor", row.get("element")), frozenset(ends)
        if row.get("other_access") == "declaration":
            key += (row["message"],)  # a line may declare several
        if key in merged:
            row["count"] += merged[key]["count"]
            if merged[key]["severity"] == "error" or row["severity"] == "note":
                row = merged[key] | {"count": row["count"]}
        merged[key] = row
    return list(merged.values())


def _together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for the races of a warp's lanes on one array whose lines are connected: one missing
    barrier causes them all."""
    kept: list[dict[str, Any]] = []
    groups: list[tuple[dict[str, Any], set[int]]] = []
    for row in rows:
        lines = {row["line"], row.get("other_line")}
        if row["kind"] == "race" and _is_in_warp(row):
            alike = [
                group
                for group in groups
                if group[1] & lines
                and all(group[0][it] == row[it] for it in ("kernel", "file", "tensor", "severity"))
            ]
            if alike:
                first, its_lines = alike[0]
                its_lines |= lines
                first["count"] += row["count"]
                continue
            groups.append((row, lines))
        kept.append(row)
    for row, lines in groups:
        if more := sorted(lines - {row["line"], row["other_line"]}):
            named = ", ".join(map(str, more))
            row["message"] += f"; the same holds of line{'s' * (len(more) > 1)} {named}"
    return kept


def _raised(error: Exception, places: Places) -> dict[str, Any]:
    row = {"kind": "raised", "message": str(error), "file": "", "line": 0, "count": 1}
    row |= {"severity": "error", "hazard": ""}
    if isinstance(error, NotEnded):
        row |= {"kind": "timeout", "severity": "note"}
    if isinstance(error, Crashed):
        row["kind"] = "host crash"
    if refused := re.search(r"kernel (.+), launched at (\S+):(\d+): ", str(error)):
        kernel, file, line = refused.groups()
        file = places.users_file(file) or file
        row |= {"kind": "refused launch", "kernel": kernel, "file": file, "line": int(line)}
    return row


def _hazard(it: dict[str, Any]) -> str:
    """The hazard of a race, such as read after write."""
    if it["kind"] != "race":
        return ""
    now, before = (
        "read" if place["access"] == "read" else "write" for place in (it["place"], it["other"])
    )
    return f"{now} after {before}"


def _where(row: dict[str, Any]) -> str:
    """The element and the byte of a row."""
    byte, tensor = row["byte"], row["tensor"]
    return f"{row['element']} (byte {byte})" if row["element"] else f"byte {byte} of {tensor}"


def _late(launch: dict[str, Any], limit: str) -> str:
    """How far a launch had come when it was stopped."""
    blocks, ended = launch["blocks"], launch["ended"]
    return (
        f"kernel {launch['kernel']} was stopped when the {limit} for the check were over;"
        f" {ended} of its {blocks} block{'s' if blocks != 1 else ''} had ended"
    )


def _wrong_index(message: str, row: dict[str, Any]) -> str:
    """Read a message such as `index 5 of 'float [4]'`: the first extent is the one exceeded."""
    index, of = message.split(" of ", 1)
    extent = re.search(r"\[(\d+)\]", of)
    name = row["element"] or of.strip("'")
    has = f", which has {extent[1]} elements" if extent else ""
    further = ": it runs into the next row" if row["severity"] == "note" else ""
    return f"{index} of {name}{has}{further}"


def _sentence(it: dict[str, Any], row: dict[str, Any], data: dict[str, Any]) -> str:
    """What happened, as a sentence."""
    access, tensor = row["access"], row.get("tensor")
    what = f"{access} of {it['size']} bytes"
    match it["kind"]:
        case "race":
            who = f"thread {row['other_thread']}"
            if row["block"] != row["other_block"]:
                who += f" of block {row['other_block']}"
            article = "an" if row["other_access"] == "atomic" else "a"
            return (
                f"{access} of {_where(row)}; {who} had {article}"
                f" {row['other_access']} there at line {row['other_line']}"
                + (f": {it['message']}" if it["message"] else "")
            )
        case "race between streams":
            ours, theirs = it["message"].split("|")
            return f"{ours} {_where(row)}, which {theirs} in another stream; nothing orders the two"
        case "asynchronous race" | "wrong parity" | "missing proxy fence":
            where = _where(row) if tensor else "memory"
            return (
                f"{access} of {where}; the {row['other_access']} of line {row['other_line']}"
                f" (thread {row['other_thread']}): {it['message']}"
            )
        case "ended block" if tensor:
            return f"{what} at {_where(row)}: {it['message']}"
        case "out of bounds" if not access:  # the operating system stopped it
            return it["message"]
        case "array end":
            return f"{access} past the end of {it['message']}"
        case "index":
            return _wrong_index(it["message"], row)
        case "freed memory":
            freed = f", which {row['freed']} has freed" if row["freed"] else ", which is freed"
            return f"{what} at {_where(row)}{freed}"
        case "out of bounds" if it["message"] == "host":
            return f"{what} at {it['address']:#x}, which the host has from malloc or new"
        case "out of bounds" if it["message"] == "host's stack":
            return f"{what} at {it['address']:#x}, a variable of a function of the host"
        case "out of bounds" if it["message"]:  # the bytes of an element
            bytes_ = int(it["message"])
            index = (it["address"] - it["begin"]) // bytes_ + (1 << 32)
            said = row["index"] or "its index"
            return (
                f"{what} far before the beginning of {tensor}: {said} passed 2^31, which an int"
                f" cannot hold, and became negative; in 64 bits it is {index}"
            )
        case "out of bounds" if not tensor:
            where = f"at {it['address']:#x}"
            return f"{what} {where}, which is of no tensor that the call was given or made"
        case "out of bounds" if it["address"] < it["begin"]:
            before = it["begin"] - it["address"]
            return f"{what}, {before} bytes before the beginning of {tensor}"
        case "out of bounds":
            past = it["address"] + it["size"] - it["end"]
            return f"{what} ends {past} bytes past the end of {tensor}"
        case "uninitialised" if row.get("other_access") == "declaration":
            result = _where(row) if tensor else "what this line does"
            several = " and " in it["message"]
            none = "have no value when they are" if several else "has no value when it is"
            return f"{result} depends on {it['message']}, which {none} read"
        case "uninitialised" if it["message"] and tensor:
            return f"{it['message']}: {_where(row)}, which was never written"
        case "host access" | "host copy":
            return f"{it['message']} {_where(row)}, which is the device's memory"
        case "unsynchronised":
            does, work = it["message"].split("|")
            return f"{does} {_where(row)}, and has not waited for the {work}"
        case "uninitialised":
            read = f"{what} at {_where(row)}" if tensor else "this line's result"
            line = row.get("other_line")
            return read + (f"; what line {line} stores depends on it" if line else "")
        case "inactive lane" if row.get("other_line"):
            return f"{it['message']}; what line {row['other_line']} stores depends on it"
        case "misaligned" if it["size"]:
            past = it["address"] % it["size"]
            where = f"{_where(row)}, " if tensor else ""
            said = f"{what} at {where}{past} past a multiple of {it['size']}"
            if row.get("view", 0) % it["size"]:
                said += f"; {tensor} is a view that begins {row['view']} bytes into its storage"
            return said
        case "timeout":
            return _late(data["launches"][it["launch"]], it["message"])
        case "unwritten":
            first = f", which is {row['element']}" if row["element"] else ""
            return f"{tensor}: {it['message']}{first}"
        case "divergent barrier" if row["other_access"] == "continue":
            return (
                f"thread {row['other_thread']} goes past this barrier by the continue"
                f" of line {row['other_line']}, and thread {row['thread']} waits at it"
            )
        case "divergent barrier" | "inactive lane" as kind if row.get("other_access") == "end":
            names = "" if kind == "divergent barrier" else ", which names it in its mask"
            return (
                f"thread {row['other_thread']} has ended without coming here, where thread"
                f" {row['thread']} waits{names}"
            )
        case "divergent barrier":
            return (
                f"{access} here and {row['other_access']} at line {row['other_line']}"
                f" (thread {row['other_thread']}) opened as one barrier"
            )
    return it["message"]
