"""The asynchronous work in a report: waits for it, and tensor core products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pandas import DataFrame

from lab.checker.places import Places

WAITS = ["file", "line", "wait", "times", "in_flight", "most"]
PRODUCTS = ["file", "line", "product", "types", "products", "operations", "at_peak_us"]

# Peak dense operations a second of an H200, from its data sheet, by the type of A; it has no figure
# for 4 bits and 1 bit.
PEAK = {
    **dict.fromkeys(("f16", "bf16"), 989e12),
    "tf32": 495e12,
    **dict.fromkeys(("e4m3", "e5m2", "s8", "u8"), 1979e12),
    "f64": 67e12,
}


def waits(data: dict[str, Any], places: Places) -> list[dict[str, Any]]:
    rows: dict[tuple, dict[str, Any]] = {}
    for it in data["waits"]:
        file, line, _ = places.sites[it["site"]]
        what = data["sites"][it["site"]]["what"]
        row = rows.setdefault(
            (file, line, what),
            {"file": file, "line": line, "wait": what, "times": 0, "in_flight": 0, "most": 0},
        )
        row["times"] += it["times"]
        row["in_flight"] += it["in_flight"]
        row["most"] = max(row["most"], it["most"])
    for row in rows.values():
        row["in_flight"] /= row["times"]
    return sorted(rows.values(), key=lambda row: (row["file"], row["line"]))


def products(data: dict[str, Any], places: Places) -> list[dict[str, Any]]:
    rows: dict[tuple, dict[str, Any]] = {}
    for it in data["products"]:
        file, line, _ = places.sites[it["site"]]
        what = data["sites"][it["site"]]["what"]
        row = rows.setdefault(
            (file, line, what, it["types"]),
            {"file": file, "line": line, "product": what, "types": it["types"]}
            | {"products": 0, "operations": 0},
        )
        row["products"] += it["products"]
        row["operations"] += it["operations"]
    for row in rows.values():
        peak = PEAK.get(row["types"].partition(" ")[0])
        row["at_peak_us"] = row["operations"] / peak * 1e6 if peak else float("nan")
    return sorted(rows.values(), key=lambda row: (row["file"], row["line"]))


def text(waits: DataFrame, products: DataFrame) -> list[str]:
    """A line for each wait, and one for each source line with products."""
    lines = []
    for row in waits.to_dict("records"):
        lines.append(
            f"{Path(row['file']).name}:{row['line']}: {row['wait']}, {row['times']} times, with"
            f" {row['in_flight']:.1f} in flight on average, {row['most']} at most"
        )
    for row in products.to_dict("records"):
        lines.append(
            f"{Path(row['file']).name}:{row['line']}: {row['product']} of {row['types']}:"
            f" {row['operations']:,} operations, {row['at_peak_us']:.3g} us at an H200's peak"
        )
    return ["", *lines] if lines else []
