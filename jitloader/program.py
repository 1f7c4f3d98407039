"""The process of a whole program: opens its library, and calls its main().

    python -I -S program.py LIBRARY... -- NAME ARGUMENTS...

The last library is the program; those before it are opened first, with global symbols. This file is
started by its path. It imports neither the project nor torch, because a program should start as
fast as any other.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys

CANNOT_OPEN = 127  # the exit status of a shell that cannot start a program


def main() -> None:
    split = sys.argv.index("--")
    *needed, library = sys.argv[1:split]
    arguments = [*map(os.fsencode, sys.argv[split + 1 :])]
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python handles them otherwise
        signal.signal(number, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent process
    try:
        for path in needed:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        program = ctypes.CDLL(library)
    except OSError as error:
        print(f"the program cannot be started: {_demangled(str(error))}", file=sys.stderr)
        os._exit(CANNOT_OPEN)
    # Show output line by line, also through a pipe.
    stdout = "__stdoutp" if sys.platform == "darwin" else "stdout"
    line_buffered = 1  # _IOLBF
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, stdout), None, line_buffered, ctypes.c_size_t(0))
    last_words = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: _tell_untaken_error(program, needed, libc)
    )
    # A program may call exit(), and errors are thread-local: look when thread-locals are destroyed.
    _untaken_error(needed)  # constructs the thread-local error
    if hasattr(libc, "__cxa_thread_atexit_impl"):
        here = ctypes.cast(program.main, ctypes.c_void_p)  # newer glibc asks for its owner
        libc.__cxa_thread_atexit_impl(last_words, None, here)
    else:
        libc.__cxa_atexit(last_words, None, None)
    argv = (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)
    environment = ctypes.c_void_p.in_dll(libc, "environ")
    libc.exit(program.main(len(arguments), argv, environment))


def _tell_untaken_error(program: ctypes.CDLL, needed: list[str], libc: ctypes.CDLL) -> None:
    """Print a launch error that the program has not read: one line, and one for each place at
    which threads wait for ever.

    On a GPU, for CUDA's last error: nothing tells whether the program has read it already.
    """
    libc.fflush(None)
    if error := _untaken_error(needed):
        line = _line_of_fault(needed)
        _tell("an error of CUDA that the program does not show", error, line and f", at {line}")
    elif not needed and (error := _error_of_gpu(program)):
        _tell("CUDA's last error when the program ended", error)


def _tell(what: str, error: bytes, behind: str = "") -> None:
    first, *places = error.decode(errors="replace").splitlines()
    os.write(2, "\n".join([f"{what}: {first}{behind}", *places, ""]).encode())


def _untaken_error(needed: list[str]) -> bytes | None:
    return _taken("simulator_untold_error", needed)


def _taken(what: str, needed: list[str]) -> bytes | None:
    """The text of a function of the simulator, if it has any."""
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
    return re.sub("^/.*/mirror/", "/", line)  # the build's copy of the source


def _error_of_gpu(program: ctypes.CDLL) -> bytes | None:
    """The error of launches that were refused or that failed."""
    try:
        last, wait, text = (
            getattr(program, name)
            for name in ("cudaGetLastError", "cudaDeviceSynchronize", "cudaGetErrorString")
        )
    except AttributeError:  # it does not use the CUDA runtime
        return None
    text.restype = ctypes.c_char_p
    code = last() or wait()
    return text(code) if code else None


def _demangled(text: str) -> str:
    return _output_of(["c++filt"], text).strip() or text


def _output_of(command: list[str], text: str = "") -> str:
    """The output of a tool; "" if the tool is not there."""
    try:
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout


if __name__ == "__main__":
    main()
