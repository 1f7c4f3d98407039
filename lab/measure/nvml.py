"""What NVIDIA's management library (NVML) says of a GPU: the numbers that nvidia-smi shows.

The library comes with the driver, so that nothing has to be installed to ask it. Its signatures are
those of the NVML API Reference. Whatever is missing, the library (in many containers), the GPU in
it or, with an old driver, a function, is answered by None: what NVML says is a note beside a
measurement, and never a reason to fail.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from enum import IntFlag

import torch

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1  # NVML_CLOCK_SM
_NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND
_MOST_PROCESSES = 256  # of a GPU, that are looked at
_UINT, _ULL = ctypes.c_uint, ctypes.c_ulonglong


class Reason(IntFlag):
    """Why the clock is not higher, nvmlClocksEventReasons; those that are named here."""

    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS_SETTING = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL_SLOWDOWN = 0x20
    HW_THERMAL_SLOWDOWN = 0x40
    HW_POWER_BRAKE_SLOWDOWN = 0x80


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = (
        ("pid", _UINT),
        ("memory", _ULL),
        ("gpu_instance", _UINT),
        ("compute_instance", _UINT),
    )


class _Utilization(ctypes.Structure):
    """nvmlProcessUtilizationSample_t: each number but the first two in percent."""

    _fields_ = (
        ("pid", _UINT),
        ("microseconds", _ULL),
        ("sm", _UINT),
        ("memory", _UINT),
        ("encoder", _UINT),
        ("decoder", _UINT),
    )


class Gpu:
    """A GPU as NVML knows it. Each answer is None where NVML has none."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def sm_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        return self._ask("nvmlDeviceGetClockInfo", _UINT, _SM_CLOCK)

    def highest_sm_mhz(self) -> int | None:
        """The highest clock that the multiprocessors can have."""
        return self._ask("nvmlDeviceGetMaxClockInfo", _UINT, _SM_CLOCK)

    def watts(self) -> float | None:
        """The power that the board draws."""
        return _in_watts(self._ask("nvmlDeviceGetPowerUsage", _UINT))

    def highest_watts(self) -> float | None:
        """The power cap that is in force."""
        return _in_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit", _UINT))

    def reasons(self) -> Reason | None:
        """Why the clock is not higher now."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", _ULL)
        if bits is None:  # its name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", _ULL)
        return None if bits is None else Reason(bits)

    def others(self, since: float) -> int | None:
        """How many other processes the multiprocessors have worked for.

        since: seconds since the epoch. NVML takes a sample a few times a second.

        A process that has memory there and starts nothing does not count. In a container NVML may
        give processes the numbers that they have outside of it: there, one is taken for this one.
        """
        known = self._listed("nvmlDeviceGetComputeRunningProcesses_v3", _Process)
        samples = self._listed("nvmlDeviceGetProcessUtilization", _Utilization, int(1e6 * since))
        if known is None or samples is None:
            return None
        busy = {sample.pid for sample in samples if sample.sm}
        if os.getpid() in {process.pid for process in known}:
            return len(busy - {os.getpid()})
        return max(len(busy) - 1, 0)

    def _listed(self, name: str, kind: type, *since: int) -> list | None:
        """What a function writes to an array, of which it is told the length."""
        array, count = (kind * _MOST_PROCESSES)(), _UINT(_MOST_PROCESSES)
        arguments: tuple[object, ...] = (ctypes.byref(count), array)
        if since:  # nvmlDeviceGetProcessUtilization has them in the other order
            arguments = (array, ctypes.byref(count), *map(_ULL, since))
        code = _code(self._library, name, self._handle, *arguments)
        if code == _NOT_FOUND:  # no sample since then
            return []
        return list(array[: count.value]) if code == 0 else None

    def _ask(self, name: str, kind: type, *which: int) -> int | None:
        answer = kind()
        arguments = (self._handle, *map(_UINT, which), ctypes.byref(answer))
        return answer.value if _call(self._library, name, *arguments) else None


def gpu(device: torch.device | int | None = None) -> Gpu | None:
    """The GPU that PyTorch calls `device`, the current one if None; None where NVML has it not.

    It is found by its UUID, for NVML counts all GPUs of the machine, PyTorch only those of
    CUDA_VISIBLE_DEVICES. An instance of MIG stands for its whole GPU, whose clock is its own.
    """
    if (library := _library(LIBRARY)) is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    if whole := _handle(library, "nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode()):
        return Gpu(library, whole)
    if part := _handle(library, "nvmlDeviceGetHandleByUUID", f"MIG-{uuid}".encode()):
        whole = _handle(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
        return Gpu(library, whole) if whole else None
    return None


def driver() -> str | None:
    """The version of NVIDIA's driver, as in "580.159.04"."""
    text = ctypes.create_string_buffer(80)  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
    library = _library(LIBRARY)
    there = library and _call(library, "nvmlSystemGetDriverVersion", text, _UINT(len(text)))
    return text.value.decode() if there else None


@functools.cache
def _library(name: str) -> ctypes.CDLL | None:
    """NVML, ready to be asked. It stays open to the end of the process."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    return library if _call(library, "nvmlInit_v2") else None


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> bool:
    """Whether the library has the function, and it returned NVML_SUCCESS."""
    return _code(library, name, *arguments) == 0


def _code(library: ctypes.CDLL, name: str, *arguments: object) -> int | None:
    """What a function of the library returned; None where there is no such function."""
    function: Callable[..., int] | None = getattr(library, name, None)
    return None if function is None else function(*arguments)


def _handle(library: ctypes.CDLL, name: str, of: object) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    return handle if _call(library, name, of, ctypes.byref(handle)) else None


def _in_watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
