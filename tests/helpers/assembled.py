"""Which instructions ptxas accepts: many with one call, which takes as long as for one."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from toolchain import machine


def refused(
    statements: Iterable[str], registers: str, architecture: str, folder: Path
) -> dict[str, str]:
    """What ptxas says of each statement that it refuses; each is the one of a kernel of its own."""
    left, said = list(dict.fromkeys(statements)), {}
    code = folder / "statements.ptx"
    command = [machine.cuda_home() / "bin/ptxas", f"-arch={architecture}", code, "-o", os.devnull]
    head = f".version 9.0\n.target {architecture}\n.address_size 64"
    while left:
        kernels = (
            f".visible .entry k{n}() {{ {registers} {statement} ret; }}"
            for n, statement in enumerate(left)
        )
        code.write_text("\n".join([head, *kernels, ""]))
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            break
        errors = re.findall(r"line (\d+); (?:error|fatal) *: (.*)", done.stderr)
        assert errors, done.stderr
        found = {left[int(line) - 4]: why for line, why in errors}
        said |= found
        left = [statement for statement in left if statement not in found]
    return said
