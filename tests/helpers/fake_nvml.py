"""A GPU whose clock and power a test decides, as NVIDIA's management library would tell of it."""

import ctypes
import functools
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from lab.measure import nvml

SOURCE = Path(__file__).with_name("fake_nvml.cpp")
UUID = "9c6e3e52-01f9-4ae1-b5d7-6c8f8e0d3a11"
BUSY = {"MHZ": 1410, "HIGHEST_MHZ": 1980, "MILLIWATTS": 698_000, "HIGHEST_MILLIWATTS": 700_000}
POWER_CAP, IDLE = nvml.Reason.SW_POWER_CAP.value, nvml.Reason.GPU_IDLE.value


def build(folder: Path, *flags: str) -> Path:
    """The library that stands in for NVML."""
    library = folder / "-".join(["libfake", *flags, "nvml.so"])
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-shared", "-fPIC", *flags, str(SOURCE), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def use(monkeypatch: pytest.MonkeyPatch, library: Path | None) -> None:
    """Have the lab ask this library; with None, there is no NVML on this machine."""

    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "CDLL", absent)
    monkeypatch.setattr(pynvml, "nvmlLib", library and ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(nvml, "_nvml", functools.cache(nvml._nvml.__wrapped__))


def _no_gpu(device: object = None) -> SimpleNamespace:
    return SimpleNamespace()


class _Renamed:
    """What PyTorch knows of a GPU, under this UUID; torch.compile asks for the rest."""

    uuid = UUID

    def __init__(self, properties: object) -> None:
        self._properties = properties

    def __getattr__(self, name: str) -> object:
        return getattr(self._properties, name)


class FakeNvml:
    """Makes the lab ask `library`, and PyTorch have a GPU of this UUID."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
        self._patch = monkeypatch
        for name in list(os.environ):
            if name.startswith("FAKE_"):
                monkeypatch.delenv(name)
        use(monkeypatch, library)
        known = torch.cuda.get_device_properties if torch.cuda.is_available() else _no_gpu
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device=None: _Renamed(known(device))
        )
        self.says(UUID=f"GPU-{UUID}", REASONS=POWER_CAP, **BUSY)

    def says(self, **values: object) -> None:
        """What it tells from now on: UUID, MHZ, .., REASONS, PROCESSES, BUSY; None is nothing."""
        for name, value in values.items():
            if value is None:
                self._patch.delenv(f"FAKE_{name}", raising=False)
            else:
                self._patch.setenv(f"FAKE_{name}", str(value))
