"""What a scenario plays with: a loader, a folder with sources and a cache, and real processes."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tests.helpers.forks import Process, fresh
from tests.helpers.jit_cases import ENDLESS
from tests.helpers.scenarios.loaders import Loader

ROOT = Path(__file__).resolve().parents[3]
LOAD = 'print(load("answer.cpp").answer())'
PATIENCE = 30  # seconds that a process may take before it is said to wait for ever


class Fails(AssertionError):
    """What a process did instead of what was wanted, in half a sentence."""


class Scene:
    """What a scenario plays with: a loader, a folder, and a cache in it.

    popen: starts its processes; Fork is quicker, which has PyTorch imported by then.
    """

    def __init__(
        self,
        loader: Loader,
        folder: Path,
        patience: int = PATIENCE,
        popen: Callable[..., Process] = fresh,
    ) -> None:
        self.loader, self.folder, self.cache = loader, folder, folder / "cache"
        self.patience, self.popen = patience, popen
        self.environment = loader.caches(self.cache)
        self.privileged = True  # root may write anywhere, and ordinary users may not

    # ---- files

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def answer(self, value: object, before: str = "") -> Path:
        """The source: a function that returns `value`."""
        return self.write(
            "answer.cpp", f'{before}\nextern "C" int answer() {{ return {value}; }}\n'
        )

    def slow_answer(self, value: int) -> Path:
        """The same, and some seconds of work for the compiler."""
        return self.answer(f'std::regex_match("a", std::regex("a")) * {value}', "#include <regex>")

    def endless_answer(self) -> Path:
        """The same, and minutes of work: a compiler that is to end does not do so by itself."""
        return self.answer("Slow<double, 800>::value", ENDLESS)

    def compiler(self, flags: str = "", version: str = "") -> None:
        """From now on compile by a script that counts, and fills the disk where `full` exists.

        It calls itself what c++ does, unless a version is given.
        """
        script = self.write(
            "my-c++",
            f"""
            #!/usr/bin/env bash
            [ "$1" = --version ] && [ "{version}" ] && echo "{version}" && exit
            arguments=("$@")
            case "$*" in *" -c "*answer.cpp*) echo >> "{self.folder}/compilations";; esac
            for i in "${{!arguments[@]}}"; do
                [ -e "{self.folder}/full" ] && [[ ${{arguments[i]}} == *.o ]] &&
                    [[ ${{arguments[i-1]}} == -o ]] && arguments[i]=/dev/full
            done
            case "$*" in */runtime.cpp*) arguments+=(-O0);; esac  # which is not what is tried
            exec c++ {flags} "${{arguments[@]}}"
            """,
        )
        script.chmod(0o755)
        self.environment["CXX"] = str(script)

    def compilations(self) -> int:
        """How often that script has compiled the source."""
        counted = self.folder / "compilations"
        return len(counted.read_text()) if counted.exists() else 0

    def libraries(self) -> list[Path]:
        return list(self.cache.rglob("answer*.so"))

    def files(self) -> int:
        return sum(path.is_file() for path in self.cache.rglob("*"))

    # ---- processes

    def start(self, code: str, file: str = "main.py") -> Process:
        """A Python that knows `load` and runs `code` in this folder.

        It hears interrupts, which a job in the background leaves to nobody.
        """
        hear = "signal.signal(signal.SIGINT, signal.default_int_handler)"
        parts = ("import os, signal, sys, time", hear, self.loader.code, code)
        self.write(file, "\n\n".join(map(textwrap.dedent, parts)))
        command, popen = [sys.executable, file], self.popen
        if not self.privileged and os.geteuid() == 0:
            drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
            command, popen = [*drop, *command], fresh
        return popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def line(self, process: Process) -> str:
        """The next line that a process prints."""
        if not select.select([process.stdout], [], [], self.patience)[0]:
            self._end(process, self.patience)
        return process.stdout.readline().strip()

    def finish(self, process: Process, patience: int = 0) -> tuple[str, str]:
        """What a process printed, and what it said on stderr; Fails where it does not succeed."""
        patience = patience or self.patience
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self._end(process, patience)
        if process.returncode < 0:
            raise Fails(f"the process dies of {signal.Signals(-process.returncode).name}")
        if process.returncode:
            raise Fails(self._last_error(err))
        return out.strip(), err

    @staticmethod
    def _end(process: Process, patience: int) -> NoReturn:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Fails(f"waits for ever (ended after {patience} s)") from None

    def _last_error(self, text: str) -> str:
        """The line of a traceback that names the exception, without this scene's folder."""
        found = re.findall(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Tool)\b.*", text, re.MULTILINE)
        line = (found or text.splitlines() or ["ends without a word"])[-1]
        line = line.replace(f"{self.folder}/", "").replace(str(self.folder), "")
        return textwrap.shorten(line, 100, placeholder=" ...")

    def go_on(self, process: Process) -> str:
        """What a process prints after a line that it waits for."""
        process.stdin.write("\n")
        return self.finish(process)[0]

    def run(self, code: str = LOAD, patience: int = 0) -> str:
        return self.finish(self.start(code), patience)[0]

    def expect(self, wanted: object, code: str = LOAD) -> None:
        """Run `code`, which must print `wanted`."""
        expect_answer(" ".join(self.run(code).split()), wanted)

    def expect_builds(self, wanted: int) -> str:
        """How often the source was compiled, by the script that counts."""
        count = self.compilations()
        told = f"{count} build{'s' * (count != 1)}"
        assert count == wanted, told
        return told


def expect_answer(answered: str, wanted: object) -> None:
    assert answered == str(wanted), f"answers {answered}; right is {wanted}"
