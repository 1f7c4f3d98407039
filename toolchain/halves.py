"""Run nvcc with the two halves of its work side by side.

    python halves.py NVCC ARGUMENTS...

What nvcc does for the host (the preprocessor, cudafe++) and for the GPU (the preprocessor, cicc,
ptxas, fatbinary) do not need each other; only the C++ compiler, which comes last, needs both. nvcc
runs one after the other. `nvcc --dryrun` says with which commands: here they are run as two chains.

Where the commands are not those of one compilation to an object, nvcc does all by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import zlib
from typing import NamedTuple

COMMAND = (sys.executable, "-I", "-S", __file__)  # and behind it nvcc's

_SETTING = re.compile(r"([A-Z_]\w*)=(.*)")


class Steps(NamedTuple):
    """The commands of one compilation, for a shell.

    for_host, for_gpu: the chains; last: the C++ compiler's. named: the file that tells what names
    the source's static kernels have, and needs to be there before.
    """

    for_host: list[str]
    for_gpu: list[str]
    last: str
    named: str
    environment: dict[str, str]


def steps_of(said: str, target: str, depfile: str | None) -> Steps | None:
    """The steps that `nvcc --dryrun` tells of; None where they are not as expected.

    target, depfile: what the compiler makes, and where it is to say what it has read.
    """
    environment: dict[str, str] = {}
    commands: list[str] = []
    for line in said.splitlines():
        step = line.removeprefix("#$ ").strip()
        if not line.startswith("#$ "):
            return None
        if setting := _SETTING.fullmatch(step):
            environment[setting[1]] = setting[2].strip()
        else:
            commands.append(step)
    cudafe = [step for step in commands if re.match(r'"?[^" ]*\bcudafe\+\+"? ', step)]
    if len(cudafe) != 1 or len(commands) < 5:
        return None
    made = re.search(
        r'--gen_module_id_file --module_id_file_name "([^"]+)" "([^"]+)" *$', cudafe[0]
    )
    last = commands[-1]
    if made is None or " -c -x c++ " not in last or ".cudafe1.cpp" not in last:
        return None
    named, preprocessed = made.groups()
    before = [step for step in commands if step.endswith(f'-o "{preprocessed}"')]
    if len(before) != 1 or " -E " not in before[0]:
        return None
    for_gpu = [step for step in commands[:-1] if step not in (*before, *cudafe)]
    if sum("cicc" in step.split(" ", 1)[0] for step in for_gpu) < 1:
        return None
    depends = ""
    if depfile:
        depends = f" -MD -MF {shlex.quote(depfile)} -MT {shlex.quote(target)}"
    host = [before[0] + depends, cudafe[0].replace("--gen_module_id_file ", "")]
    return Steps(host, for_gpu, last, named, environment)


def _without_depfile(arguments: list[str]) -> tuple[list[str], str | None]:
    """The arguments without torch's `-MD -MF FILE`, and that file."""
    if arguments[:2] != ["-MD", "-MF"]:
        return arguments, None
    return arguments[3:], arguments[2]


def _started(chain: list[str], environment: dict[str, str], output: int) -> subprocess.Popen:
    script = " && ".join(f"{{ {step}\n}}" for step in chain)
    return subprocess.Popen(
        ["/bin/sh", "-c", script], env=environment, stdout=output, stderr=subprocess.STDOUT
    )


def run(nvcc: str, arguments: list[str]) -> int:
    """Compile; nvcc's exit status, its output on ours."""
    left, depfile = _without_depfile(arguments)
    with tempfile.TemporaryDirectory(prefix="nvcc_", dir=".") as folder:
        asked = [nvcc, "--dryrun", "--keep", "--keep-dir", folder, *left]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        target = left[left.index("-o") + 1] if "-o" in left[:-1] else ""
        steps = steps_of(said.stderr, target, depfile) if said.returncode == 0 else None
        if steps is None:
            return subprocess.run([nvcc, *arguments], check=False).returncode
        with open(steps.named, "w") as file:  # noqa: PTH123 - pathlib takes long to import
            name = re.sub(r"\W", "_", os.path.basename(target))  # noqa: PTH119
            file.write(f"_{zlib.crc32(' '.join(arguments).encode()):08x}_{len(name)}_{name}")
        environment = os.environ | steps.environment
        with tempfile.TemporaryFile(dir=folder) as kept:
            gpu = _started(steps.for_gpu, environment, kept.fileno())
            status = _started(steps.for_host, environment, sys.stdout.fileno()).wait()
            if status:
                gpu.terminate()
            status = status or gpu.wait()
            kept.seek(0)
            sys.stdout.buffer.write(b"" if gpu.returncode is None else kept.read())
            sys.stdout.flush()
        return status or _started([steps.last], environment, sys.stdout.fileno()).wait()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
