"""Constants that a source declares as tunable, and the values that were best on a GPU.

    constexpr int kThreads = TUNABLE(kThreads, 256);     kernels/include/tunable.h

A table NAME.tuned.toml beside NAME.cu has a section for each GPU that was measured:

    ["NVIDIA H200"]
    kThreads = 128

    ["NVIDIA H200".measured]     # microseconds as it was, and with these constants
    "float32 8192 x 4096" = [91.4, 88.0]

A build for that GPU takes its constants from there, and every other build those of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import torch

from simulator.scan import without_comments

_DECLARED = re.compile(r"=\s*TUNABLE\s*\(\s*(\w+)\s*,\s*(.*?)\s*\)\s*;", re.DOTALL)
_FLAG = "-DTUNE_"


def tunables(texts: Iterable[str]) -> dict[str, str]:
    """The constants that sources declare as tunable, each with its value there, as written."""
    return dict(pair for text in texts for pair in _DECLARED.findall(without_comments(text)))


def tuning_flags(constants: dict[str, int]) -> tuple[str, ...]:
    """What gives the constants these values."""
    return tuple(f"{_FLAG}{name}=TUNED({value})" for name, value in constants.items())


def sets_constants(flags: Iterable[str]) -> bool:
    """Whether there are flags of `tuning_flags` among these."""
    return any(flag.startswith(_FLAG) for flag in flags)


def tuning_table(source: Path) -> Path:
    """Where the table of a source is, or would be."""
    return source.with_suffix(".tuned.toml")


def tuned_constants(table: str, gpu: str) -> dict[str, int]:
    """What a table says for the GPU of this name; {} for one that it does not know."""
    import tomllib  # late: a warm load without a table does without

    section = tomllib.loads(table).get(gpu, {})
    return {name: value for name, value in section.items() if isinstance(value, int)}


def this_gpu() -> str | None:
    """The name of the current GPU, as tables have it; None without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def with_section(
    table: str, gpu: str, constants: dict[str, int], measured: dict[str, tuple[float, float]]
) -> str:
    """The table with these constants for a GPU, beside those that it has for it.

    measured: by the name of a call, microseconds as it was before and with the constants.
    """
    import tomllib

    sections = tomllib.loads(table)
    before = sections.get(gpu, {})
    times = before.get("measured", {}) | {name: list(pair) for name, pair in measured.items()}
    others = {name: value for name, value in before.items() if name != "measured"}
    sections[gpu] = {**others, **constants, "measured": times}
    lines = ["# Constants by GPU, measured by lab.tune (docs/tune.md)."]
    for name, section in sorted(sections.items()):
        times = section.pop("measured", {})
        lines += ["", f"[{_quoted(name)}]"]
        lines += [f"{constant} = {value}" for constant, value in section.items()]
        lines += ["", f"[{_quoted(name)}.measured]  # microseconds before, and with these"]
        lines += [f"{_quoted(call)} = [{a:.2f}, {b:.2f}]" for call, (a, b) in times.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """As a basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", " ", escaped) + '"'
