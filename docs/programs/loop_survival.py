"""What loaders survive: every scenario, played with ours and with plain load for docs/loop.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from docs.programs.page import ROOT
from tests.helpers.scenarios import SCENARIOS, Scenario, title
from tests.helpers.scenarios.loaders import Loader, ours, plain
from tests.helpers.scenarios.scene import Scene


@dataclass(frozen=True)
class Verdict:
    passed: bool
    told: str  # half a sentence, or nothing


def play(loader: Loader, scenario: Scenario) -> Verdict:
    """One scenario in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Verdict(True, scenario(Scene(loader, Path(folder))) or "")
        except AssertionError as failed:
            return Verdict(False, str(failed))


def play_all(
    say: Callable[[str], None], only: str = ""
) -> tuple[tuple[str, ...], dict[str, tuple[Verdict, ...]]]:
    """The loaders' names, and their verdicts by scenario; as many at once as there are cores.

    `say` is told each verdict as it comes; `only` chooses by a part of the title.
    """
    with tempfile.TemporaryDirectory() as folder:
        runtime = Path(folder, "runtime")
        loaders = (ours(runtime), plain(Path(folder)))
        build = "import jitload; jitload.announce(False); jitload.ensure('square', target='cpu')"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JITLOAD_CACHE": str(runtime)}
        subprocess.run([sys.executable, "-c", build], env=environment, check=True)

        def judged(scenario: Scenario, loader: Loader) -> Verdict:
            verdict = play(loader, scenario)
            outcome = "pass" if verdict.passed else "fail"
            told = f": {verdict.told}" if verdict.told else ""
            say(f"{outcome}  {loader.name}: {title(scenario)}{told}")
            return verdict

        chosen = [scenario for scenario in SCENARIOS if only in title(scenario)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            waiting = {
                title(scenario): [pool.submit(judged, scenario, loader) for loader in loaders]
                for scenario in chosen
            }
        verdicts = {
            name: tuple(future.result() for future in futures) for name, futures in waiting.items()
        }
        return tuple(loader.name for loader in loaders), verdicts
