"""A subject to follow that needs no compiler: what its .cu says happens."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import jitload
from lab.measure.error import Error
from lab.watcher.result import Checked, Measured, Predicted, Use
from lab.watcher.settings import Settings


@dataclass(frozen=True)
class Followed:
    """Its .cu ends with the error of a call, and may name what else is to happen."""

    source: Path

    @property
    def modules(self) -> list[Path]:
        return []

    def recipes(self):
        return [jitload.recipe_of([self.source], target="cpu")]

    def load(self):
        if "broken" in self.source.read_text():
            raise jitload.CompileError("no semicolon", path=self.source, line=1)
        return self.recipes()

    def launched(self, settings: Settings):
        return (Use("forward<float>", 256, 22, 0, 1.0),)

    def instrument(self):
        pass

    def versions(self):
        return ("naive", "best")

    def measure(self, settings: Settings) -> Measured:
        said = self.source.read_text()
        if "raise" in said:
            raise ValueError("x: wrong shape")
        if "crash" in said:
            os.abort()
        if "hang" in said:
            time.sleep(1000)
        if "slow" in said:
            time.sleep(0.5)
        error = float(said.split()[-1])
        ours, torchs = Error(error, error, error, error), Error(0.5, 0.5, 0.5, 0.5)
        return Measured(ours, torchs, 10.0, "CPU simulator", float("nan"))

    def check(self, settings: Settings, seconds: float) -> Checked:
        return Checked((), 24, 12)

    def predict(self, settings: Settings, seconds: float) -> Predicted:
        return Predicted(12.0, 10.0, 14.0, 80.0, "H200", True)
