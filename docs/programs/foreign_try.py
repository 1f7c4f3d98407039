"""Try one thing of a stranger's, in this process: `foreign.py` starts one for each.

    python foreign_try.py < CASE.json

What came of it is printed as JSON on the last line. Of the project it imports the loader alone, so
it tries the one that is on Python's path: an earlier one, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import foreign_calls

import jitload

CANNOT_OPEN = 127  # the exit status of a program that a function is missing for
MEMORY = 12 << 30  # bytes of address space for a program on the simulator


def tried(case: dict) -> dict:
    """Its verdict, the line that says why, and seconds for the build."""
    jitload.announce(False)
    if "call" in case:
        with tempfile.TemporaryDirectory() as folder:
            return called(case, Path(folder))
    started = time.monotonic()
    options = {"flags": case["flags"], "include": case["include"], "target": case["target"]}
    program = getattr(jitload, "Program", None) if case["kind"] == "program" else None
    name = re.sub(r"\W", "_", Path(case["files"][0]).stem)
    try:
        if program:
            made = program(*case["files"], **options)
        else:
            with contextlib.redirect_stdout(sys.stderr):
                made = jitload.load(*case["files"], name=f"foreign_{name}", **options)
    except (jitload.MissingTool, OSError, RuntimeError, TypeError, ValueError) as error:
        is_compilers = isinstance(error, jitload.CompileError)
        # Ours say in one line what is not supported; a compiler's error is none of those.
        found = "refused" if is_compilers and error.log is None else "no build"
        said = {"verdict": found, "why": _first_line(error), "build": _since(started)}
        if case["kind"] != "program" and case["others"] and "undefined symbol" in said["why"]:
            return tried(case | {"files": [*case["files"], *case["others"]], "others": []})
        return said | ({"all": _all_errors(error)} if is_compilers else {})
    result = {"build": _since(started)}
    if not program:
        names = ", ".join(getattr(made, "build", made).exports)
        return result | {"verdict": "loads", "why": names}
    runs = [_ran(made, words, case) for words in case["arguments"]]
    if case["others"] and runs[0]["status"] == CANNOT_OPEN and "undefined" in runs[0]["said"]:
        return tried(case | {"files": [*case["files"], *case["others"]], "others": []})
    return result | {"runs": runs}


def called(case: dict, folder: Path) -> dict:
    """By how much the results of a function are off, and seconds for it and the build."""
    source, name = case["call"]
    call, path = foreign_calls.call_of(source, name), Path(case["files"][0])
    text, function = call.text(path)
    files = [path] if path.suffix == ".cu" and str(path) not in text else []
    if text:
        binding = folder / ("call.cpp" if "PYBIND11" in text else "call.cu")
        binding.write_text(text)
        files.append(binding)
    flags = [*case["flags"], *call.flags]
    name = "foreign_" + re.sub(r"\W", "_", path.stem)
    started = time.monotonic()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            made = jitload.load(
                *files, name=name, flags=flags, include=case["include"], target=case["target"]
            )
            build, started = _since(started), time.monotonic()
            off = call.check(made, function)
    except jitload.CompileError as error:
        found = "refused" if error.log is None else "no build"
        return {"verdict": found, "why": _first_line(error), "build": _since(started)}
    except RuntimeError as error:
        return {"verdict": "wrong", "why": _first_line(error), "build": _since(started)}
    return {"off": off, "build": build, "seconds": _since(started)}


def _ran(program: jitload.Program, words: list[str], case: dict) -> dict:
    said = bytearray()

    def note(_: int, chunk: bytes) -> None:
        if len(said) < 1_000_000:
            said.extend(chunk)

    before = _cpu()
    if case["target"] == "cpu":  # CUDA reserves far more addresses than it has memory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ran = program.run(words, timeout=case["seconds"], cwd=case["folder"], output=note)
    return {
        "status": ran.status,
        "timed_out": ran.timed_out,
        "told": str(ran),
        "seconds": round(ran.seconds, 2),
        "cpu": round(_cpu() - before, 2),
        "said": said.decode(errors="replace"),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _all_errors(error: jitload.CompileError) -> list[str]:
    """What else the compiler said, each message once."""
    if error.log is None or not Path(error.log).is_file():
        return []
    text = Path(error.log).read_text(errors="replace")
    return list(dict.fromkeys(re.findall(r"(?:error|undefined reference to)[: ]+(.*)", text)))[:60]


def _since(started: float) -> float:
    return round(time.monotonic() - started, 2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and what it has started ends
    out = os.dup(1)
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    answer = tried(json.load(sys.stdin))
    os.write(out, b"\n" + json.dumps(answer).encode() + b"\n")
