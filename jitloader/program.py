"""The process of a whole program: opens its library, and calls its main().

    python -I -S program.py LIBRARY... -- NAME ARGUMENTS...

The last library is the program; those before it are opened first, for all to use. This file is
started by its path and imports nothing of the project, nor torch, since a program should start as
fast as any other.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys

CANNOT_OPEN = 127  # the exit status, as of a shell that cannot start a program


def main() -> None:
    split = sys.argv.index("--")
    *needed, library = sys.argv[1:split]
    arguments = [*map(os.fsencode, sys.argv[split + 1 :])]
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # which Python handles itself
        signal.signal(number, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with who has started it
    try:
        for path in needed:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        program = ctypes.CDLL(library)
    except OSError as error:
        print(f"the program cannot be started: {_demangled(str(error))}", file=sys.stderr)
        os._exit(CANNOT_OPEN)
    # What it prints is seen at once, also through a pipe.
    stdout = "__stdoutp" if sys.platform == "darwin" else "stdout"
    line_buffered = 1  # _IOLBF
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, stdout), None, line_buffered, ctypes.c_size_t(0))
    last_words = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: _tell_untaken_error(program, needed, libc)
    )
    # A program may call exit(), too, and errors are kept by thread: before those go, we look.
    _untaken_error(needed)  # makes them
    if hasattr(libc, "__cxa_thread_atexit_impl"):
        here = ctypes.cast(program.main, ctypes.c_void_p)  # newer glibc looks whose it is
        libc.__cxa_thread_atexit_impl(last_words, None, here)
    else:
        libc.__cxa_atexit(last_words, None, None)
    argv = (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)
    environment = ctypes.c_void_p.in_dll(libc, "environ")
    libc.exit(program.main(len(arguments), argv, environment))


def _tell_untaken_error(program: ctypes.CDLL, needed: list[str], libc: ctypes.CDLL) -> None:
    """One line for an error of a launch whose words the program has not asked for.

    Of a GPU, for CUDA's last error: nothing tells whether a call has returned it already.
    """
    libc.fflush(None)
    if error := _untaken_error(needed):
        line = _line_of_fault(needed)
        _tell("an error of CUDA that the program does not show", error, line and f", at {line}")
    elif not needed and (error := _error_of_gpu(program)):
        _tell("CUDA's last error when the program ended", error)


def _tell(what: str, error: bytes, behind: str = "") -> None:
    text = error.decode(errors="replace").splitlines()[0]
    os.write(2, f"{what}: {text}{behind}\n".encode())


def _untaken_error(needed: list[str]) -> bytes | None:
    return _taken("simulator_untold_error", needed)


def _taken(what: str, needed: list[str]) -> bytes | None:
    """What the simulator says of itself."""
    for path in needed:
        take = getattr(ctypes.CDLL(path), what, None)
        if take is not None:
            take.restype = ctypes.c_char_p
            return take()
    return None


def _line_of_fault(needed: list[str]) -> str:
    """The line of the program's sources at which a kernel failed; "" if unknown."""
    fault = (_taken("simulator_take_fault", needed) or b"").decode(errors="replace")
    library, offset = fault.split("\n")[2:] or ("", "")
    if not library:
        return ""
    lines = _output_of(["addr2line", "-i", "-e", library, f"0x{offset}"])
    own = (line.split(" (")[0] for line in lines.splitlines() if "/simulator/include/" not in line)
    line = next((line for line in own if not line.startswith("?")), "")
    return re.sub("^/.*/mirror/", "/", line)  # where the build had its copy


def _error_of_gpu(program: ctypes.CDLL) -> bytes | None:
    """Of the launches that were refused, and of those that went wrong."""
    try:
        last, wait, text = (
            getattr(program, name)
            for name in ("cudaGetLastError", "cudaDeviceSynchronize", "cudaGetErrorString")
        )
    except AttributeError:  # it calls nothing of CUDA's
        return None
    text.restype = ctypes.c_char_p
    code = last() or wait()
    return text(code) if code else None


def _demangled(text: str) -> str:
    return _output_of(["c++filt"], text).strip() or text


def _output_of(command: list[str], text: str = "") -> str:
    """Of a tool that may not be there; "" then."""
    try:
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout


if __name__ == "__main__":
    main()
