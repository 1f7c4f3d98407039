"""The machine code in a library, from NVIDIA's cuobjdump and nvdisasm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from toolchain import machine
from toolchain.instructions import Function, Instruction, Place, functions

_TARGET = re.compile(r"\s*\.target\s+(\w+)")
_SECTION = re.compile(r'\s*\.section\s+\.text\.([^,\s]+),"ax"')
_PLACE = re.compile(r'\s*//## File "([^"]*)", line (\d+)( inlined at )?')
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$")
_LABEL = re.compile(r"([.$\w]+):$")


@lru_cache(maxsize=8)
def machine_code(library: Path) -> tuple[Function, ...]:
    """Every function for a GPU in a library, for each of its architectures.

    Raises:
        MissingTool: cuobjdump or nvdisasm is not on this machine; the message says how to get it.
        RuntimeError: they cannot read the library.
    """
    cuobjdump, nvdisasm = machine.cuda_tool("cuobjdump"), machine.cuda_tool("nvdisasm")
    by_symbol: dict[tuple[str, str], list[Instruction]] = {}
    with tempfile.TemporaryDirectory(prefix="sass-") as folder:
        _run([cuobjdump, "-xelf", "all", library.resolve()], folder)
        for cubin in sorted(Path(folder).glob("*.cubin")):
            listing = _run([nvdisasm, "--print-code", "--print-line-info-inline", cubin], folder)
            by_symbol |= parsed(listing)
    return tuple(functions(by_symbol))


def parsed(text: str) -> dict[tuple[str, str], list[Instruction]]:
    """The instructions that nvdisasm printed, by symbol and architecture."""
    by_symbol: dict[tuple[str, str], list[Instruction]] = {}
    code: list[Instruction] = []
    architecture = symbol = ""
    places: tuple[Place, ...] = ()
    is_whole = True  # the chain of places has reached the line that was not inlined
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            code.append(Instruction(match[2], places, int(match[1], 16)))
        elif match := _PLACE.match(line):
            place = Place(match[1], int(match[2]))
            places = (place,) if is_whole else (*places, place)
            is_whole = not match[3]
        elif match := _SECTION.match(line):
            symbol, places, is_whole = match[1], (), True
            code = by_symbol.setdefault((symbol, architecture), [])
        elif match := _LABEL.match(line):
            if match[1] not in (symbol, f".text.{symbol}"):
                code.append(Instruction(match[1], (), is_label=True))
        elif match := _TARGET.match(line):
            architecture = match[1]
    for code in by_symbol.values():
        _drop_filling(code)
    return by_symbol


def _drop_filling(code: list[Instruction]) -> None:
    """Remove the padding after a function's end: a branch to itself, and NOPs."""
    while code and (code[-1].is_label or code[-1].text == "NOP"):
        code.pop()
    if len(code) > 2 and code[-2].is_label and code[-1].text == f"BRA `({code[-2].text})":
        del code[-2:]


def _run(command: list[Path | str], folder: str) -> str:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
