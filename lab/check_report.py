"""What `lab.check` found: tables, text, HTML and figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas import DataFrame

import jitload
from lab import symbols

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTOR = 32  # bytes
TYPES = ("given", "fresh", "shared", "device", "private")

TRAFFIC = [
    *("file", "line", "via", "access", "memory", "tensor", "size"),
    *("requests", "lanes", "bytes_asked", "bytes_moved", "sectors", "ideal_sectors"),
    *("passes", "bank_conflicts", "contention", "worst", "example"),
]

# What to do about each kind of finding.
HINTS = {
    "race": "No barrier, no meeting of the warp and no atomic orders these two accesses.",
    "out of bounds": "Compare the index with the size before the access.",
    "uninitialised": "Nobody has written what is read here.",
    "unwritten": "Some elements are never written: look at the last block, and at early returns.",
    "misaligned": "An access of so many bytes must stand on a multiple of as many.",
    "divergent barrier": "Threads of one block wait at different barriers: take them out of the"
    " branch.",
    "refused launch": "CUDA would refuse it too.",
    "inactive lane": "The value of a lane that takes no part in a shuffle is undefined.",
}
# Out of bounds, and far from all that is known.
UNKNOWN = "A wild pointer; or a tensor's that the call was not given: pass it as an argument."


class Report:
    """What a call's kernels did.

    findings: a row for each thing that is wrong, the first time it was seen, and `count` times.
    traffic: a row for each line of code and tensor: `requests` of warps, of so many `lanes`
        together, which asked for `bytes_asked`. Of global memory: `sectors` of 32 bytes that they
        touch, and the `ideal_sectors` that would hold as many different bytes. Of shared memory:
        `passes` through its banks, and how many of them are `bank_conflicts`. Of atomics:
        `contention`, lanes that wait for another lane at the same address. `worst`: sectors or
        passes of the costliest request, whose byte offsets, lane by lane, are `example`.
    tensors: bytes of each tensor that kernels have read and written, each byte counted once;
        bytes moved; and bytes fetched: the same without what several blocks of a launch ask for,
        of which each sector counts once.
    launches: the kernels that ran, and how many of their blocks were recorded in full.
    """

    def __init__(
        self,
        what: str,
        data: dict[str, Any],
        versions: list[jitload.Version],
        raised: Exception | None,
        thread_order: int,
    ):
        self.what, self.raised, self.thread_order = what, raised, thread_order
        self._versions, self._data = versions, data
        self._sources = {file for version in versions for file in version.manifest["sources"]}
        self._places = self._resolve()

    # ---- data

    @cached_property
    def launches(self) -> DataFrame:
        columns = ["kernel", "file", "line", "grid", "block", "shared", "blocks", "recorded"]
        return DataFrame(self._data["launches"], columns=columns)

    @cached_property
    def findings(self) -> DataFrame:
        rows = self._merged(self._finding(it) for it in self._data["findings"])
        if self.raised is not None:
            rows.append(self._raised(self.raised))
        columns = [
            *("kind", "kernel", "file", "line", "via", "access", "tensor", "byte", "size"),
            *("block", "thread", "other_access", "other_file", "other_line", "other_block"),
            *("other_thread", "address", "count", "message"),
        ]
        return DataFrame(rows, columns=columns)

    @cached_property
    def traffic(self) -> DataFrame:
        merged: dict[tuple, dict[str, Any]] = {}  # a line may have been compiled several times
        for it in self._data["traffic"]:
            site, region = self._data["sites"][it["site"]], self._data["regions"][it["region"]]
            file, line, via = self._places[it["site"]]
            shared = TYPES[region["type"]] == "shared"
            row = {
                "file": file,
                "line": line,
                "via": via,
                "access": site["access"],
                "memory": "shared" if shared else "global",
                "tensor": self._name(it["region"]),
                "size": site["size"],
                "requests": it["requests"],
                "lanes": it["lanes"],
                "bytes_asked": it["asked"],
                "bytes_moved": SECTOR * it["sectors"],
                "sectors": it["sectors"],
                "ideal_sectors": it["ideal"],
                "passes": it["passes"],
                "bank_conflicts": it["passes"] - it["smooth"],
                "contention": it["contention"],
                "worst": it["worst"],
                "example": [None if at is None else at - it["begin"] for at in it["example"]],
            }
            before = merged.setdefault(tuple(row[name] for name in TRAFFIC[:7]), row)
            if before is not row:
                if row["worst"] > before["worst"]:
                    before |= {name: row[name] for name in ("worst", "example")}
                for name in TRAFFIC[7:-2]:
                    before[name] += row[name]
        table = DataFrame(list(merged.values()), columns=TRAFFIC)
        return table.sort_values(["file", "line"], ignore_index=True, kind="stable")

    @cached_property
    def tensors(self) -> DataFrame:
        rows = []
        for index, region in enumerate(self._data["regions"]):
            if region["type"] <= 1 and (region["read"] or region["written"]):
                moved = sum(
                    SECTOR * it["sectors"] for it in self._data["traffic"] if it["region"] == index
                )
                named = self._name(index)
                rows.append(
                    {
                        "tensor": named,
                        "bytes": region["bytes"],
                        "bytes_read": region["read"],
                        "bytes_written": region["written"],
                        "bytes_moved": moved,
                        "bytes_fetched": SECTOR * region["fetched"],
                        "counts": bool(region["name"]),
                    }
                )
        columns = [
            *("tensor", "bytes", "bytes_read", "bytes_written", "bytes_moved", "bytes_fetched"),
            "counts",
        ]
        return DataFrame(rows, columns=columns)

    @property
    def bytes_moved(self) -> int:
        """Of global memory, as warps asked for it: what caches answer counts too."""
        return int(self.traffic["bytes_moved"].sum())

    @property
    def bytes_fetched(self) -> int:
        """The same without what several blocks of a launch ask for: of that each sector once.

        So a weight that every row needs counts once, as the cache that all blocks share has it. A
        block that reads its own row twice counts twice.
        """
        return int(self.tensors["bytes_fetched"].sum())

    @property
    def bytes_floor(self) -> int:
        """Each byte of the inputs that is read, once, and each byte of the outputs, once."""
        counted = self.tensors[self.tensors["counts"].astype(bool)]
        return int(counted["bytes_read"].sum() + counted["bytes_written"].sum())

    @property
    def first(self) -> str:
        """The first finding at a line of a .cu, in one line; empty if there is none."""
        for row in self.findings.to_dict("records"):
            if row["file"].endswith(".cu"):
                return f"{row['kind']}, line {row['line']}: {row['message']}"
        return ""

    @property
    def sampled(self) -> bool:
        """Whether only some blocks of a large launch were recorded in full."""
        if "deadlock" in set(self.findings["kind"]):  # the others did not run at all
            return False
        return bool((self.launches["recorded"] < self.launches["blocks"]).any())

    # ---- places

    def _resolve(self) -> list[tuple[str, int, str]]:
        """File, line and the line inlined there, for every site."""
        sites, found = self._data["sites"], {}
        for library in {site["library"] for site in sites}:
            offsets = [site["offset"] for site in sites if site["library"] == library]
            found[library] = symbols.frames(library, offsets)
        return [self._place(found[site["library"]].get(site["offset"], [])) for site in sites]

    def _place(self, frames: list[symbols.Frame]) -> tuple[str, int, str]:
        """The innermost line of the kernel's own file; else of a header of the user's."""
        users = [
            (file, frame.line)
            for frame in frames
            if (file := self._users_file(frame.file)) is not None
        ]
        if not users:
            return "", 0, ""
        own = [place for place in users if place[0].endswith((".cu", ".cpp"))] or users
        (file, line), inner = own[0], users[0]
        via = "" if inner == own[0] else f"{Path(inner[0]).name}:{inner[1]}"
        return file, line, via

    def _users_file(self, file: str) -> str | None:
        for known in self._sources:
            if file == known or file.endswith(known if known[0] == "/" else f"/{known}"):
                return known
        return None

    def _name(self, region: int) -> str:
        it = self._data["regions"][region]
        return it["name"] or f"allocation of {it['bytes']} bytes"

    def _finding(self, it: dict[str, Any]) -> dict[str, Any]:
        place, other = it["place"], it["other"]
        launches = self._data["launches"]
        file, line, via = self._whereabouts(place, it["message"])
        row = {
            "kind": it["kind"],
            "kernel": launches[it["launch"]]["kernel"] if launches else "",
            "file": file,
            "line": line,
            "via": via,
            "access": place["access"],
            "size": it["size"],
            "block": tuple(place["block"]),
            "thread": place["thread"],
            "address": it["address"],
            "count": it["count"],
            "message": it["message"],
        }
        if it["region"] >= 0:
            row |= {"tensor": self._name(it["region"]), "byte": it["address"] - it["begin"]}
        if other["access"]:
            file, line, _ = self._whereabouts(other, "")
            row |= {
                "other_access": other["access"],
                "other_file": file,
                "other_line": line,
                "other_block": tuple(other["block"]),
                "other_thread": other["thread"],
            }
        elif it["kind"] == "deadlock":
            for row["other_file"], row["other_line"] in self._named_in(it["message"])[1:2]:
                row["other_access"] = "wait"
        row["message"] = self._sentence(it, row)
        return row

    @staticmethod
    def _merged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """One row for a pair of lines, whichever came first and however often each is compiled."""
        merged: dict[tuple, dict[str, Any]] = {}
        for row in rows:
            ends = (row["file"], row["line"]), (row.get("other_file"), row.get("other_line"))
            key = row["kind"], row.get("tensor"), frozenset(ends)
            if key in merged:
                merged[key]["count"] += row["count"]
            else:
                merged[key] = row
        return list(merged.values())

    def _raised(self, error: Exception) -> dict[str, Any]:
        row = {"kind": "raised", "message": str(error), "file": "", "line": 0, "count": 1}
        if refused := re.search(r"kernel (.+), launched at (\S+):(\d+): ", str(error)):
            kernel, file, line = refused.groups()
            file = self._users_file(file) or file
            row |= {"kind": "refused launch", "kernel": kernel, "file": file, "line": int(line)}
        return row

    def _whereabouts(self, place: dict[str, Any], message: str) -> tuple[str, int, str]:
        if place["site"] >= 0:
            return self._places[place["site"]]
        if place["line"]:
            return self._users_file(place["file"]) or place["file"], place["line"], ""
        return (*next(iter(self._named_in(message)), ("", 0)), "")

    def _named_in(self, message: str) -> list[tuple[str, int]]:
        """The places that a failure's message names, but for where the kernel was launched."""
        message = message.partition("): ")[2]
        places = re.findall(r"(\S+):(\d+): ", message)
        return [(self._users_file(file) or file, int(line)) for file, line in places]

    # ---- text

    @staticmethod
    def _sentence(it: dict[str, Any], row: dict[str, Any]) -> str:
        """What happened, in words."""
        access, tensor = row["access"], row.get("tensor")
        what = f"{access} of {it['size']} bytes"
        match it["kind"]:
            case "race":
                who = f"thread {row['other_thread']}"
                if row["block"] != row["other_block"]:
                    who += f" of block {row['other_block']}"
                return (
                    f"{access} of byte {row['byte']} of {tensor}; {who} had a"
                    f" {row['other_access']} there at line {row['other_line']}"
                )
            case "out of bounds" if not access:  # the system stopped it
                return it["message"]
            case "out of bounds" if not tensor:
                where = f"at {it['address']:#x}"
                return f"{what} {where}, which is of no tensor that the call was given or made"
            case "out of bounds" if it["address"] < it["begin"]:
                before = it["begin"] - it["address"]
                return f"{what}, {before} bytes before the beginning of {tensor}"
            case "out of bounds":
                past = it["address"] + it["size"] - it["end"]
                return f"{what} ends {past} bytes past the end of {tensor}"
            case "uninitialised":
                return f"{what} at byte {row['byte']} of {tensor}"
            case "misaligned":
                past = it["address"] % it["size"]
                where = f"byte {row['byte']} of {tensor}, " if tensor else ""
                return f"{what} at {where}{past} past a multiple of {it['size']}"
            case "unwritten":
                return f"{tensor}: {it['message']}"
            case "divergent barrier":
                return (
                    f"{access} here and {row['other_access']} at line {row['other_line']}"
                    f" (thread {row['other_thread']}) opened as one barrier"
                )
        return it["message"]

    def __str__(self) -> str:
        lines = [self.headline]
        for row in self.findings.to_dict("records"):
            lines += ["", *self._described(row)]
        if not self.traffic.empty:
            lines += ["", *self._traffic_text()]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def headline(self) -> str:
        """How much was found, in how many launches, in which order, and of how many blocks."""
        count = len(self.findings)
        found = "no findings" if not count else f"{count} finding{'s' if count > 1 else ''}"
        launches = len(self.launches)
        ran = f"{launches} launch{'es' if launches != 1 else ''}"
        order = f", thread order {self.thread_order}" if self.thread_order else ""
        sampled = ""
        if self.sampled:
            some, all_blocks = self.launches[["recorded", "blocks"]].sum()
            sampled = f"; sampled: {some} of {all_blocks} blocks are recorded in full"
        return f"{self.what}: {found} in {ran}{order}{sampled}"

    @property
    def traffic_line(self) -> str:
        """Bytes of global memory: moved, fetched, and the floor."""
        moved, fetched, floor = self.bytes_moved, self.bytes_fetched, self.bytes_floor
        line = f"global memory: {_bytes(moved)} moved"
        if fetched != moved:
            line += f"; what blocks share counted once, {_bytes(fetched)}"
        return line + (
            f", {fetched / floor:.2f} times the floor of {_bytes(floor)}" if floor else ""
        )

    def _described(self, row: dict[str, Any]) -> list[str]:
        via = f" ({row['via']})" if isinstance(row["via"], str) and row["via"] else ""
        times = f", {row['count']} times" if row["count"] > 1 else ""
        place = f": {row['file']}:{row['line']}{via}" if row["file"] else ""
        lines = [f"{row['kind']}{place}{times}"]
        for file, number in ("file", "line"), ("other_file", "other_line"):
            if isinstance(row[file], str) and (source := self.line(row[file], int(row[number]))):
                lines.append(f"  {int(row[number]):>4}  {source.strip()}")
        lines.append(f"  {row['message']}")
        if isinstance(row["access"], str) and row["access"] and row["kind"] != "unwritten":
            lines.append(f"  kernel {row['kernel']}, block {row['block']}, thread {row['thread']}")
        is_known = row["kind"] != "out of bounds" or isinstance(row["tensor"], str)
        if hint := HINTS.get(row["kind"]) if is_known else UNKNOWN:
            lines.append(f"  {hint}")
        return list(dict.fromkeys(lines))  # both sides of a race may be one line

    def _traffic_text(self) -> list[str]:
        lines = [self.traffic_line]
        shown = self.traffic[["file", "line", "access", "tensor", "requests"]].copy()
        shown["file"] = [Path(file).name for file in shown["file"]]
        shown["sectors (ideal)"] = [
            f"{it.sectors / it.requests:.1f} ({it.ideal_sectors / it.requests:.1f})"
            if it.memory == "global"
            else ""
            for it in self.traffic.itertuples()
        ]
        shown["conflicts"] = [
            f"{it.bank_conflicts / it.requests:.1f}" if it.memory == "shared" else ""
            for it in self.traffic.itertuples()
        ]
        return lines + shown.to_string(index=False).splitlines()

    # ---- pictures

    def _repr_html_(self) -> str:
        from lab import check_view

        return check_view.page(self)

    def plot_lanes(self, line: int, file: str | None = None, tensor: str | None = None) -> Figure:
        """Which lane of a warp touches which sector, or bank, at a line: its costliest request.

        file, tensor: where the line number alone does not say which.

        Raises ValueError if nothing is read or written there.
        """
        from lab import check_view

        return check_view.plot_lanes(self, line, file, tensor)

    def plot_bytes(self) -> Figure:
        """Bytes moved for each tensor, against each byte once."""
        from lab import check_view

        return check_view.plot_bytes(self)

    # ---- sources

    def line(self, file: str, number: int) -> str:
        """A line of a source that was checked, as it was built."""
        lines = self.source(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def source(self, file: str) -> list[str]:
        """The lines of a source or header that was checked, as it was built."""
        for version in self._versions:
            if kept := version.manifest["sources"].get(file):
                return (version.folder / "sources" / kept).read_text().splitlines()
        return []


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
