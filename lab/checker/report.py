"""The results of `lab.check`: tables, text, HTML and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas import DataFrame

import jitload
import lab
from lab.checker import asynchronous, findings, line_costs
from lab.checker.advice import advice, costed, wasted_us
from lab.checker.elements import Elements, Layout
from lab.checker.findings import hint_for, name_of
from lab.checker.places import TYPES, Places
from lab.gpus import gpu as gpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTOR = 32  # bytes

TRAFFIC = [
    *("file", "line", "via", "access", "memory", "tensor", "size"),
    *("requests", "lanes", "bytes_asked", "bytes_moved", "sectors", "ideal_sectors"),
    *("passes", "bank_conflicts", "contention", "wasted_us", "worst", "example", "advice"),
]


class Report:
    """What the kernels of a call did.

    findings: a row for each fault, as it was first seen, with its `count`.
    traffic: a row for each line of code and tensor: `requests` of warps, their number of active
        `lanes` in all, and the `bytes_asked` for. For global memory: `sectors` of 32 bytes touched,
        and `ideal_sectors`, the fewest that could hold as many different bytes. For shared memory:
        `passes` through its banks, and how many of them are `bank_conflicts`. For atomics:
        `contention`, the lanes that wait for another lane at the same address. `worst`: sectors or
        passes of the costliest request; `example`: its byte offsets, lane by lane; `advice`: what
        is wrong with it. `wasted_us`: the microseconds that the cost above the ideal may take on
        the GPU that LAB_GPU names, by default an H200, including blocks that were not recorded.
    tensors: bytes of each tensor that kernels read and wrote, each byte counted once; bytes moved;
        and bytes fetched, in which a sector that several blocks of a launch ask for counts once.
    launches: the kernels that ran, and how many of their blocks were recorded in full.
    waits: for each line that waits for asynchronous work, how often it was passed, and how many
        groups of copies or products, or stages with a copy, were in flight: average and maximum.
    products: for each line that issues tensor core products, their number, types and operations (a
        multiplication and an addition are two), and the microseconds that these take at an H200's
        peak rate.
    threads: where the threads of the running blocks stood when the check's time ran out.
    """

    def __init__(
        self,
        what: str,
        data: dict[str, Any],
        builds: list[jitload.Build],
        raised: Exception | None,
        thread_order: int,
        tensors: dict[str, Layout] | None = None,
    ):
        self.what, self.raised, self.thread_order = what, raised, thread_order
        self.again: Callable[..., Report] | None = None  # repeats the call, for lab.trace
        self._builds, self._data = builds, data
        self._places = Places(data["sites"], builds)
        self._elements = Elements(tensors or {}, builds)

    # ---- data

    @cached_property
    def launches(self) -> DataFrame:
        columns = ["kernel", "file", "line", "grid", "block", "shared", "blocks", "recorded"]
        return DataFrame(self._data["launches"], columns=columns)

    @cached_property
    def threads(self) -> DataFrame:
        rows = findings.standing(self._data, self._places)
        return DataFrame(rows, columns=findings.STANDING)

    @cached_property
    def findings(self) -> DataFrame:
        rows = findings.rows(self._data, self._places, self._elements, self.raised)
        return DataFrame(rows, columns=findings.COLUMNS)

    @cached_property
    def traffic(self) -> DataFrame:
        counts = TRAFFIC[TRAFFIC.index("requests") : TRAFFIC.index("worst")]
        gpu, times = gpus.load(), self._blocks_for_each_recorded
        merged: dict[tuple, dict[str, Any]] = {}  # a line may be compiled several times
        for it in self._data["traffic"]:
            site, region = self._data["sites"][it["site"]], self._data["regions"][it["region"]]
            file, line, via = self._places.sites[it["site"]]
            shared = TYPES[region["type"]] == "shared"
            row = {
                "file": file,
                "line": line,
                "via": via,
                "access": site["access"],
                "memory": "shared" if shared else "global",
                "tensor": name_of(region),
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
            row["wasted_us"] = times * wasted_us(row, gpu)
            row["advice"] = advice(row, self._type_at(region, site["size"]))
            before = merged.setdefault(tuple(row[name] for name in TRAFFIC[:7]), row)
            if before is not row:
                if row["worst"] > before["worst"]:
                    before |= {name: row[name] for name in ("worst", "example", "advice")}
                for name in counts:
                    before[name] += row[name]
        table = DataFrame(list(merged.values()), columns=TRAFFIC)
        return table.sort_values(["file", "line"], ignore_index=True, kind="stable")

    @property
    def _blocks_for_each_recorded(self) -> float:
        launched, recorded = (self.launches[it].sum() for it in ("blocks", "recorded"))
        return float(launched / recorded) if recorded else 1.0

    def _type_at(self, region: dict[str, Any], size: int) -> str:
        """The type of a region's elements, if their size is `size` bytes."""
        layout = self._elements.layout(region)
        return layout.type if layout and layout.size == size else f"{size} bytes"

    @cached_property
    def waits(self) -> DataFrame:
        return DataFrame(asynchronous.waits(self._data, self._places), columns=asynchronous.WAITS)

    @cached_property
    def products(self) -> DataFrame:
        rows = asynchronous.products(self._data, self._places)
        return DataFrame(rows, columns=asynchronous.PRODUCTS)

    @cached_property
    def tensors(self) -> DataFrame:
        rows = []
        for index, region in enumerate(self._data["regions"]):
            if region["type"] <= 1 and (region["read"] or region["written"]):
                moved = sum(
                    SECTOR * it["sectors"] for it in self._data["traffic"] if it["region"] == index
                )
                rows.append(
                    {
                        "tensor": name_of(region),
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
        """Bytes of global memory that warps asked for, including cache hits."""
        return int(self.traffic["bytes_moved"].sum())

    @property
    def bytes_fetched(self) -> int:
        """The same, but a sector that several blocks of a launch ask for counts once.

        So a weight that every row needs counts once, because all blocks share the L2 cache. A block
        that reads its own row twice counts twice.
        """
        return int(self.tensors["bytes_fetched"].sum())

    @property
    def bytes_floor(self) -> int:
        """Each input byte that is read counts once, and each output byte once."""
        counted = self.tensors[self.tensors["counts"].astype(bool)]
        return int(counted["bytes_read"].sum() + counted["bytes_written"].sum())

    @property
    def first(self) -> str:
        """The first finding at a line of a .cu file, else of a header; "" if there is none."""
        rows = self.findings.to_dict("records")
        for row in rows:
            if row["file"].endswith(".cu"):
                return f"{row['kind']}, line {row['line']}: {row['message']}"
        return f"{rows[0]['kind']}: {rows[0]['message']}" if rows else ""

    @property
    def sampled(self) -> bool:
        """Whether only some blocks of a large launch were recorded in full."""
        if {"deadlock", "timeout"} & {*self.findings["kind"]}:  # others did not run at all
            return False
        return bool((self.launches["recorded"] < self.launches["blocks"]).any())

    # ---- text

    def __str__(self) -> str:
        lines = [self.headline, *filter(None, [self.sampling_line])]
        for row in self.findings.to_dict("records"):
            lines += ["", *self._described(row)]
        if not self.traffic.empty:
            lines += ["", *self._traffic_text()]
        lines += asynchronous.text(self.waits, self.products)
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def headline(self) -> str:
        """The number of findings, launches and recorded blocks, and the thread order."""
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
    def sampling_line(self) -> str:
        """What a sample leaves out; "" if all blocks were recorded."""
        if not self.sampled:
            return ""
        left = self.launches["blocks"].sum() - self.launches["recorded"].sum()
        return (
            f"Of {left} blocks only their bounds, and where their writes end, are checked: races,"
            " uninitialised reads and gaps among them are not seen, and their traffic is not"
            " counted. Recorded are the first blocks, the last ones and neighbours between them;"
            " sample_threads= records more."
        )

    @property
    def traffic_line(self) -> str:
        """Bytes of global memory: moved, fetched, and the minimum."""
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
        lines = [f"{findings.title(row)}{place}{times}"]
        if isinstance(row["caller_file"], str):
            lines[0] += f", called at {Path(row['caller_file']).name}:{int(row['caller_line'])}"
        for file, number in findings.ENDS:
            if isinstance(row[file], str) and (source := self.line(row[file], int(row[number]))):
                lines.append(f"  {int(row[number]):>4}  {source.strip()}")
        lines.append(f"  {row['message']}")
        if row["kind"] == "timeout":
            lines += [f"  {stood}" for stood in findings.told(self.threads)]
        lines += [f"  {told}" for told in (findings.memory(row), findings.who(row)) if told]
        if hint := hint_for(row):
            lines.append(f"  {hint}")
        return list(dict.fromkeys(lines))  # both sides of a race may be on one line

    def _traffic_text(self) -> list[str]:
        lines = [self.traffic_line]
        shown = self.traffic[["file", "line", "access", "tensor"]].copy()
        shown["file"] = [Path(file).name for file in shown["file"]]
        memories = line_costs.memories(self.traffic)
        each = [self.traffic.iloc[[row]] for row in range(len(self.traffic))]
        shown[line_costs.titles(memories)] = [line_costs.cells(row, memories) for row in each]
        lines += shown.to_string(index=False).splitlines()
        advised = self.traffic[self.traffic["advice"] != ""]
        gpu = gpus.load()
        for row in advised.sort_values("wasted_us", ascending=False).to_dict("records"):
            place = f"{Path(row['file']).name}:{row['line']}: {row['access']} of {row['tensor']}"
            lines.append(f"{place}: {costed(row, gpu)}")
        return lines

    # ---- pictures

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, traces: bool = False) -> str:
        """The report as HTML. traces: fold a trace below each finding, which repeats the call three
        times for each."""
        from lab.checker import links
        from lab.checker.page import page

        notes = [self.sampling_line, "" if self.traffic.empty else self.traffic_line]
        below = links.traced_below(self) if traces else []
        tables = self.traffic, self.findings, self.threads
        return page(self.headline, notes, *tables, self.source, below)

    def save(self, path: str | Path) -> Path:
        """Write the report to an HTML page in which each finding opens its trace."""
        from lab.checker import links

        return links.save([self], path)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        from lab.checker import links

        display({"text/plain": str(self), "text/html": self.html()}, raw=True)
        if (buttons := links.buttons(self)) is not None:
            display(buttons)

    def plot_lanes(self, line: int, file: str | None = None, tensor: str | None = None) -> Figure:
        """The costliest request at a line: which lane of a warp touches which sector or bank.

        file, tensor: needed where the line number alone is ambiguous.

        Raises ValueError if nothing is read or written there.
        """
        from lab.checker import view

        return view.plot_lanes(self.traffic, line, file, tensor, self.line)

    def plot_bytes(self) -> Figure:
        """Bytes moved for each tensor, against the minimum of each byte once."""
        from lab.checker import view

        return view.plot_bytes(self.tensors, f"{self.what}: traffic", self.headline)

    def trace(self, finding: int = 0, **options: Any) -> Any:
        """The steps around a finding's accesses, for stepping: `lab.trace` of its call.

        finding: its position in `findings`. options: as for `lab.trace`.

        Raises: as `lab.trace` does.
        """
        return lab.trace(self, finding=finding, **options)

    def told_line(self, file: str, line: int) -> int:
        """The line that findings report for a statement: for inline PTX, the instruction's line."""
        return self._places.instruction(file, line)

    def layout_of(self, region: dict[str, Any]) -> Layout | None:
        """The layout of a region that is a tensor or an array, found by its name and bytes."""
        return self._elements.layout(region)

    # ---- sources

    def line(self, file: str, number: int) -> str:
        """A line of a checked source, as it was compiled."""
        lines = self.source(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    @property
    def sources(self) -> dict[str, str]:
        """The text of each user source and header that was checked, by its name."""
        return {
            name: (build.folder / "sources" / kept).read_text()
            for build in self._builds
            for name, kept in build.kept.items()
        }

    def source(self, file: str) -> list[str]:
        """The lines of a checked source or header, as they were compiled."""
        for build in self._builds:
            if kept := build.kept.get(file):
                return (build.folder / "sources" / kept).read_text().splitlines()
        return []


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
