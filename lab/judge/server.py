"""The judge for agents: an MCP server on standard input and output, `python -m lab mcp`.

Its tools return the JSON that the commands print. It needs the package mcp, 2 or later:
`pip install "kernel-playground[mcp]"`.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jitload
from lab.judge import run
from lab.judge.task import Task


def build(source: str) -> dict[str, Any]:
    """Compile CUDA C++ for the CPU's simulator: its exports, or the first error with its line."""
    return _with_file(source, run.build)


def check(task: str, source: str, seed: int | None = None) -> dict[str, Any]:
    """What the judge says of safety: races, bounds, uninitialised and misaligned accesses."""
    found = judge(task, source, seed)
    return {"findings": found["findings"], "traffic": found["traffic"], "stage": found["stage"]}


def judge(task: str, source: str, seed: int | None = None, cases: int = 24) -> dict[str, Any]:
    """Judge CUDA C++ that defines `launch` by a task: accepted or rejected, with findings."""
    return _with_file(source, lambda path: run.judge(task, path, seed=seed, cases=cases).as_dict())


def predict(task: str, source: str) -> dict[str, Any]:
    """Time of a call on a GPU, predicted or measured, and the bytes that some calls fetch."""
    found = judge(task, source, cases=4)
    return {name: found[name] for name in ("verdict", "findings", "traffic", "time")}


def signature(task: str) -> str:
    """What a submission for a task has to define: a function, or an op of PyTorch's."""
    of = Task.of(task)
    return f"{of.signature()}\nor: {of.schema()}"


def audit(op: str, arguments: list[str] | None = None, reference: str = "") -> dict[str, Any]:
    """Try every trap on MODULE:FUNCTION; arguments as the command has them: float32[64, 33]."""
    words = [op, *(arguments or []), *(["--reference", reference] if reference else []), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "lab", "audit", *words],
        capture_output=True,
        text=True,
        env=jitload.environment(),
    )
    if done.returncode > 1:
        raise ValueError(done.stderr.strip())
    return json.loads(done.stdout)


TOOLS = (build, check, audit, judge, predict, signature)


def _with_file(source: str, of: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="mcp-") as name:
        path = Path(name) / "submission.cu"
        path.write_text(source)
        return of(path)


def _telling(tool: Callable, told_error: type[Exception]) -> Callable:
    """The tool with errors whose text reaches the client: the SDK hides that of others."""

    @functools.wraps(tool)
    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except (ValueError, OSError, RuntimeError) as error:
            raise told_error(str(error)) from error

    return telling


def main(words: list[str]) -> int:
    """Serve until the client disconnects; return the exit status."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        print('mcp: pip install "kernel-playground[mcp]"', file=sys.stderr)
        return 2
    jitload.announce(False)
    server = MCPServer("kernel-playground")
    for tool in TOOLS:
        server.tool()(_telling(tool, ToolError))
    server.run()
    return 0
