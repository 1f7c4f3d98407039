"""Repeat here what proof.json says of this package, and compare: python -m PACKAGE.verify

Digests of every file; the errors, on every device that is here; and on a GPU the times. The exit
status is 1 where something differs from what was recorded, and each such line begins with DIFFERS.
Errors may be half as large again, for the random inputs need not have the same last bits
everywhere; times count on the GPU that they were recorded on.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from PACKAGE import cases, timing

HERE = Path(__file__).resolve().parent
PROOF = json.loads((HERE / "proof.json").read_text())
LIBRARIES = (".so", ".dylib", ".pyd")
NOT_LISTED = ("proof.json", "PROOF.md")

MORE = 1.5  # times a recorded error, and
ULPS = 0.1  # so much more, are no difference
PERCENT = 10.0  # of a copy's speed


def digests() -> Iterator[tuple[bool, str]]:
    """Whether each file is what it was: (agrees, what to say), the agreeing ones in one line."""
    there = {
        path.relative_to(HERE).as_posix(): path
        for path in HERE.rglob("*")
        if path.is_file() and path.suffix not in LIBRARIES and "__pycache__" not in path.parts
    }
    same = 0
    for name, digest in PROOF["files"].items():
        if name not in there:
            yield False, f"{name} is gone"
        elif hashlib.sha256(there[name].read_bytes()).hexdigest() != digest:
            yield False, f"{name} is not the file that was recorded"
        else:
            same += 1
    for name in sorted(there.keys() - PROOF["files"].keys() - set(NOT_LISTED)):
        yield False, f"{name} was not recorded"
    yield True, f"{same} files have the recorded digests"


def libraries() -> Iterator[tuple[bool, str]]:
    """Whether the libraries are those of the wheel, where pip has installed one."""
    try:
        files = importlib.metadata.files("DISTRIBUTION") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    listed = {
        Path(file.locate()).resolve(): file.hash for file in files if file.suffix in LIBRARIES
    }
    for path in sorted(HERE.glob("_*")):
        if path.suffix not in LIBRARIES:
            continue
        if (known := listed.get(path)) is None:
            yield True, f"{path.name} is of no installed wheel: it was built here"
            continue
        digest = hashlib.new(known.mode, path.read_bytes()).digest()
        agrees = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == known.value
        yield agrees, f"{path.name} is {'' if agrees else 'not '}the library of the wheel"


def errors(device: str) -> Iterator[tuple[bool, str]]:
    """The errors on a device, against PyTorch's own and against those that were recorded."""
    recorded = {
        str(cases.Case(**line["case"])): line
        for line in PROOF["errors"]
        if line["case"]["device"] == device
    }
    known = "" if recorded else "; none was recorded on such a device"
    worst: dict[str, tuple[float, str]] = {}
    count = 0
    for case in cases.cases(device):
        now, before = cases.judged(case), recorded.pop(str(case), None)
        said = f"{case}: {now.result} is off by {now.ours:.3g} ULP, PyTorch by {now.pytorchs:.3g}"
        count += 1
        if not now.holds:
            yield False, f"{said}; {now.allowed:.3g} is allowed"
            continue
        if before and now.ours > MORE * before["ours"] * _unit(now, before) + ULPS:
            yield False, f"{said}; recorded is {before['ours']:.3g}"
            continue
        of_type = f"{case.op} {case.dtype}"
        worst[of_type] = max(worst.get(of_type, (0.0, "")), (now.ours / now.allowed, said))
    for case in recorded:
        yield False, f"{case} was recorded, and here the operator refuses it or has no gradient"
    for _, said in worst.values():
        yield True, f"{said} (the least room of its type)"
    yield True, f"{count} cases on {device}{known}"


def _unit(now: cases.Judgement, before: dict) -> float:
    """How much smaller the ULP is than it was recorded, for the largest truth of this draw.

    Where that passes a power of two, PyTorch's error has grown with ours.
    """
    return max(1.0, now.pytorchs / before["pytorchs"]) if before["pytorchs"] else 1.0


def times() -> Iterator[tuple[bool, str]]:
    """The times on a GPU, in percent of a copy, against those that were recorded."""
    here = torch.cuda.get_device_name()
    for line in PROOF["bench"]:
        if line["percent_of_copy"] is None or not timing.can_repeat(line):
            continue
        same, before = line["device"] == here, line["percent_of_copy"]
        now = timing.percent_of_copy(line)
        if same and now < before - PERCENT:  # once, anything may have disturbed it
            now = max(now, *(timing.percent_of_copy(line) for _ in range(2)))
        what = f"{line['op']} {line['direction']} {line['dtype']} {line['rows']} x {line['cols']}"
        said = f"{what}: {now:.0f}% of a copy"
        if not same:
            yield True, f"{said}; {before:.0f}% was recorded on {line['device']}"
        else:
            yield now >= before - PERCENT, f"{said}; recorded is {before:.0f}%"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m PACKAGE.verify", description=__doc__)
    parser.add_argument("--no-times", action="store_true", help="leave the times on a GPU out")
    options = parser.parse_args(arguments)
    devices = cases.devices()
    parts = [("files", digests()), ("libraries", libraries())]
    if cases.OPS:
        parts += [(f"errors on {device}", errors(device)) for device in devices]
    if "cuda" in devices and not options.no_times:
        parts.append(("times", times()))
    differing = 0
    for title, lines in parts:
        print(title, flush=True)
        for agrees, said in lines:
            differing += not agrees
            print(f"  {'' if agrees else 'DIFFERS: '}{said}", flush=True)
    several = f"{differing} difference{'s' * (differing > 1)}"
    print(several if differing else "nothing differs from what was recorded")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
