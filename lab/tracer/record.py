"""Runs a call on builds that report each line to the tracer, and collects its records."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import jitload
from lab.checker.places import Places as SourceFiles
from lab.tracer.places import Places
from lab.tracer.text import WARP

# As simulator/tracer/recording.h has them.
STEP = np.dtype([("round", "u4"), ("place", "u4"), ("thread", "u2"), ("depth", "u2")])
CHANGE = np.dtype([("step", "u4"), ("variable", "u4"), ("at", "u4")])
TOUCH = np.dtype(
    [
        ("step", "u4"),
        ("how", "u2"),
        ("region", "u2"),
        ("offset", "u4"),
        ("size", "u4"),
        ("at", "u4"),
    ]
)
WAIT = np.dtype([("round", "u4"), ("warp", "u2"), ("word", "u2"), ("lanes", "u4")])
FLIGHT = np.dtype(
    [("round", "u4"), ("until", "u4"), ("thread", "u2"), ("word", "u2"), ("barrier", "u8")],
    align=True,
)
TENSOR = np.dtype(
    [
        *[("round", "u4"), ("flight", "u4"), ("thread", "u2"), ("word", "u2")],
        *[("region", "u2"), ("is_read", "u2"), ("first", "u2"), ("count", "u2")],
    ]
)
BARRIER = np.dtype(
    [
        *[("round", "u4"), ("arriving", "u4"), ("barrier", "u8"), ("bytes", "i8")],
        *[("thread", "u2"), ("word", "u2"), ("has_ended", "u2"), ("is_init", "u2")],
    ]
)
SIGHTING = np.dtype(
    [
        *[("round", "u8"), ("address", "u8"), ("place", "u4"), ("size", "u4")],
        *[("thread", "u2"), ("how", "u2"), ("outside", "u4")],
    ]
)
ROUND = np.dtype([("block", "u4"), ("number", "u4")])
BEFORE = np.dtype([("region", "u4"), ("offset", "u4"), ("size", "u4"), ("at", "u4")])
# Kinds of accesses: by an asynchronous copy, a tensor core or another block. After it: a read by
# one of these that a thread has requested.
OTHER = 3
NO_FLIGHT = 0xFFFFFFFF  # of uses of tensor memory: an access of a warp
OUTSIDE = np.dtype([("address", "u8"), ("step", "u4"), ("size", "u4")])
MOST_POINTERS = 1 << 12  # whose memory is looked up
TABLES = {"steps": STEP, "changes": CHANGE, "touches": TOUCH, "waits": WAIT, "before": BEFORE}
TABLES |= {
    "flights": FLIGHT,
    "barriers": BARRIER,
    "sightings": SIGHTING,
    "rounds": ROUND,
    "opened": ROUND,
    "outside": OUTSIDE,
    "tensor": TENSOR,
}


@dataclass(frozen=True)
class Window:
    """Which blocks of which launch are recorded, and which of their steps.

    blocks: their numbers.
    spans: for each block, the first step and the end of each span, in order.
    lines: all runs and accesses of these lines are reported, in any step.
    """

    launch: int = 0
    blocks: tuple[int, ...] = (0,)
    spans: tuple[tuple[int, int], ...] = ((0, 1000),)
    lines: tuple[int, ...] = ()


@dataclass
class Recorded:
    """The tracer's records: its tables, and for each library the names of places and variables."""

    facts: dict[str, Any]
    tables: dict[str, np.ndarray]
    bytes: np.ndarray
    places: list[Places]

    @property
    def stride(self) -> int:
        """The distance between the thread numbers of two blocks, in whole warps."""
        return -(-math.prod(self.facts["extent"]) // WARP) * WARP


class Recorder:
    """Records while a call's builds run; call `used` for each of them."""

    def __init__(self, window: Window):
        self.window = window
        self._tracer = _tracer()
        self._builds: list[jitload.Build] = []
        self._places: list[Places] = []

    def used(self, build: jitload.Build) -> None:
        """Announces a build that is about to run."""
        places = _places_of(build)
        self._places.append(places)
        self._tracer.simulator_trace_library(
            str(build.library).encode(),
            *_pointer_and_size(places.places),
            *_pointer_and_size(places.variables),
            *_pointer_and_size(places.functions),
        )

    @contextmanager
    def recording(self) -> Iterator[Callable[[], Recorded]]:
        """Records launches within the block; the yielded function returns the record."""
        it = self.window
        self._places.clear()
        blocks, spans = np.array(it.blocks, "u8"), np.array(it.spans, "u8")
        lines = np.array(it.lines, "u4")
        self._tracer.simulator_trace_begin(
            it.launch,
            *(part for column in (blocks, spans, lines) for part in _pointer_and_size(column)),
        )
        try:
            yield self._recorded
        finally:
            self._tracer.simulator_trace_end()

    def _recorded(self) -> Recorded:
        self._tracer.simulator_trace_end()
        facts = json.loads(self._tracer.simulator_trace_facts())
        tables = {name: self._table(i, kind) for i, (name, kind) in enumerate(TABLES.items())}
        recorded = Recorded(facts, tables, self._table(len(TABLES), np.dtype("u1")), self._places)
        facts["regions"] += self._pointed_to(recorded)
        return recorded

    def _pointed_to(self, recorded: Recorded) -> list[dict[str, Any]]:
        """The memory that variables point to, although no thread accesses it."""
        is_pointer = [it.types[kind][0] == "ptr" for it in recorded.places for _, kind in it.names]
        changes = recorded.tables["changes"]
        at = changes["at"][np.array([*is_pointer, False])[changes["variable"]]]
        words = recorded.bytes[at[:, None].astype("i8") + np.arange(8)].copy().view("u8")
        known = [(it["begin"], it["size"]) for it in recorded.facts["regions"]]
        found = []
        for address in np.unique(words)[:MOST_POINTERS].tolist():
            if any(0 <= address - begin <= size for begin, size in known):
                continue
            begin, size, shared = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_bool()
            name = ctypes.c_char_p()
            places = map(ctypes.byref, (begin, size, shared, name))
            if jitload.simulator_checker().simulator_check_region(
                ctypes.c_size_t(address), *places
            ):
                known.append((begin.value, size.value))
                region = {"begin": begin.value, "size": size.value, "shared": shared.value}
                region["block"] = -1
                found.append(region | {"name": name.value.decode(errors="replace")})
        return found

    def _table(self, number: int, kind: np.dtype) -> np.ndarray:
        size = ctypes.c_size_t()
        at = self._tracer.simulator_trace_table(number, ctypes.byref(size))
        return np.frombuffer(ctypes.string_at(at, size.value) if size.value else b"", kind)


@cache
def _places_of(build: jitload.Build) -> Places:
    return Places(str(build.library), SourceFiles([], [build]).users_file)


def _pointer_and_size(array: np.ndarray) -> tuple[int, int]:
    return array.ctypes.data, len(array)


@cache
def _tracer() -> ctypes.CDLL:
    tracer = jitload.simulator_tracer()
    size, place = ctypes.c_size_t, ctypes.c_void_p
    tracer.simulator_trace_begin.argtypes = [ctypes.c_uint64, *3 * [place, size]]
    tracer.simulator_trace_library.argtypes = [ctypes.c_char_p, *3 * [place, size]]
    tracer.simulator_trace_table.argtypes = [ctypes.c_uint, place]
    tracer.simulator_trace_table.restype = place
    tracer.simulator_trace_facts.restype = ctypes.c_char_p
    jitload.simulator_checker().simulator_check_region.restype = ctypes.c_bool
    return tracer
