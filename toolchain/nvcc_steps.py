"""Run nvcc's compilations for the host and for the GPU in parallel.

    python nvcc_steps.py NVCC ARGUMENTS...

nvcc's steps for the host (the preprocessor, cudafe++) and for the GPU (the preprocessor, cicc,
ptxas, fatbinary) do not depend on each other; only the C++ compiler, which comes last, needs both.
nvcc runs them one after the other. `nvcc --dryrun` lists the commands: here they run as two chains.

If the commands are not those of one compilation to an object, nvcc runs unchanged.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import zlib
from typing import NamedTuple

COMMAND = (sys.executable, "-I", "-S", __file__)  # followed by nvcc's command

_SETTING = re.compile(r"([A-Z_]\w*)=(.*)")


class Steps(NamedTuple):
    """The commands of one compilation, for a shell.

    for_host, for_gpu: the chains; last: the C++ compiler's. named: the file with the names of the
    source's static kernels, which has to exist before.
    """

    for_host: list[str]
    for_gpu: list[str]
    last: str
    named: str
    environment: dict[str, str]


def steps_of(dryrun: str, target: str, depfile: str | None) -> Steps | None:
    """The steps in the output of `nvcc --dryrun`; None if they are not as expected.

    target, depfile: the object that the compiler makes, and its depfile.
    """
    environment: dict[str, str] = {}
    commands: list[str] = []
    for line in dryrun.splitlines():
        step = line.removeprefix("#$ ").strip()
        if not line.startswith("#$ "):
            return None
        if setting := _SETTING.fullmatch(step):
            environment[setting[1]] = setting[2].strip()
        else:
            commands.append(step)
    cudafe = [step for step in commands if re.match(r'"?[^" ]*\bcudafe\+\+"? ', step)]
    by_itself = any(step.startswith("-- ") for step in commands)  # nvcc does this step itself
    if len(cudafe) != 1 or len(commands) < 5 or by_itself:
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


class _Chain:
    """Commands that are run one after another, until one fails or `end` is called."""

    def __init__(self, steps: list[str], environment: dict[str, str], output: int):
        self._steps, self._environment, self._output = steps, environment, output
        self._current: subprocess.Popen | None = None
        self._ended = False
        self._changing = threading.Lock()

    def run(self) -> int:
        """The exit status of the last command that was run."""
        for step in self._steps:
            with self._changing:
                if self._ended:
                    return 1
                self._current = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {step}"],
                    env=self._environment,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                )
            if status := self._current.wait():
                return status
        return 0

    def end(self) -> None:
        with self._changing:
            self._ended = True
            if self._current:
                self._current.kill()


def run(nvcc: str, arguments: list[str]) -> int:
    """Compile, and return nvcc's exit status; its output goes to this process's."""
    left, depfile = _without_depfile(arguments)
    with tempfile.TemporaryDirectory(prefix="nvcc_", dir=".") as folder:
        asked = [nvcc, "--dryrun", "--keep", "--keep-dir", folder, *left]
        dryrun = subprocess.run(asked, capture_output=True, text=True, check=False)
        target = left[left.index("-o") + 1] if "-o" in left[:-1] else ""
        steps = steps_of(dryrun.stderr, target, depfile) if dryrun.returncode == 0 else None
        if steps is None:
            return subprocess.run([nvcc, *arguments], check=False).returncode
        with open(steps.named, "w") as file:  # noqa: PTH123 - pathlib takes long to import
            name = re.sub(r"\W", "_", os.path.basename(target))  # noqa: PTH119
            file.write(f"_{zlib.crc32(' '.join(arguments).encode()):08x}_{len(name)}_{name}")
        environment = os.environ | steps.environment
        with tempfile.TemporaryFile(dir=folder) as output_of_gpu:
            for_gpu = _Chain(steps.for_gpu, environment, output_of_gpu.fileno())
            status_of_gpu: list[int] = []
            thread = threading.Thread(target=lambda: status_of_gpu.append(for_gpu.run()))
            thread.start()
            status = _Chain(steps.for_host, environment, sys.stdout.fileno()).run()
            if status:  # both find the same errors: show one's
                for_gpu.end()
            thread.join()
            if status:
                return status
            output_of_gpu.seek(0)
            sys.stdout.buffer.write(output_of_gpu.read())
            sys.stdout.flush()
        return status_of_gpu[0] or _Chain([steps.last], environment, sys.stdout.fileno()).run()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
