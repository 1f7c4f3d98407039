"""Reads from NVIDIA's management library (NVML) the numbers that nvidia-smi shows.

The answer is None if the library is missing (as in many containers), or the GPU in it or, with an
old driver, a function. NVML's numbers are a note beside a measurement, never a reason to fail.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from enum import IntFlag
from typing import Any

import torch


class Reason(IntFlag):
    """Why the clock is not higher: the nvmlClocksEventReasons that the lab names."""

    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS_SETTING = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL_SLOWDOWN = 0x20
    HW_THERMAL_SLOWDOWN = 0x40
    HW_POWER_BRAKE_SLOWDOWN = 0x80


class Gpu:
    """A GPU as NVML knows it. Each answer is None where NVML has none."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def sm_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        return self._ask(self._nvml.nvmlDeviceGetClockInfo, self._nvml.NVML_CLOCK_SM)

    def highest_sm_mhz(self) -> int | None:
        """The highest clock that the multiprocessors can have."""
        return self._ask(self._nvml.nvmlDeviceGetMaxClockInfo, self._nvml.NVML_CLOCK_SM)

    def watts(self) -> float | None:
        """The power that the board draws."""
        return _in_watts(self._ask(self._nvml.nvmlDeviceGetPowerUsage))

    def highest_watts(self) -> float | None:
        """The power cap that is in force."""
        return _in_watts(self._ask(self._nvml.nvmlDeviceGetEnforcedPowerLimit))

    def reasons(self) -> Reason | None:
        """Why the clock is not higher now."""
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:  # its name before driver 535
            bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if bits is None else Reason(bits)

    def others(self, since: float) -> int | None:
        """How many other processes have used the multiprocessors.

        since: seconds since the epoch. NVML takes a sample a few times a second.

        A process that only has memory there does not count. In a container NVML may report process
        ids from outside of it; then one of the processes is taken to be this one.
        """
        known = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses_v3)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, int(1e6 * since))
        except self._nvml.NVMLError as error:
            if error.value not in (self._nvml.NVML_SUCCESS, self._nvml.NVML_ERROR_NOT_FOUND):
                return None
            samples = []  # none since then
        if known is None:
            return None
        busy = {sample.pid for sample in samples if sample.smUtil}
        if os.getpid() in {process.pid for process in known}:
            return len(busy - {os.getpid()})
        return max(len(busy) - 1, 0)

    def _ask(self, function: Callable[..., Any], *which: int) -> Any:
        with contextlib.suppress(self._nvml.NVMLError):
            return function(self._handle, *which)
        return None


def gpu(device: torch.device | int | None = None) -> Gpu | None:
    """The GPU that PyTorch calls `device` (None: the current one); None if NVML lacks it.

    It is found by its UUID, because NVML counts all GPUs of the machine, and PyTorch only those of
    CUDA_VISIBLE_DEVICES. A MIG instance counts as its whole GPU, whose clock it shares.
    """
    if (nvml := _nvml()) is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    with contextlib.suppress(nvml.NVMLError):
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    with contextlib.suppress(nvml.NVMLError):
        part = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        return Gpu(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part))
    return None


def driver() -> str | None:
    """The version of NVIDIA's driver, as in "580.159.04"."""
    if (nvml := _nvml()) is None:
        return None
    with contextlib.suppress(nvml.NVMLError):
        return nvml.nvmlSystemGetDriverVersion()
    return None


@functools.cache
def _nvml() -> Any:
    """The module pynvml of nvidia-ml-py, initialized until the end of the process.

    None where NVML or the module is missing, or the driver is not loaded.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _in_watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
