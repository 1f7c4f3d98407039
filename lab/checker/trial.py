"""A call in a process of its own: what goes wrong there costs the notebook nothing.

    trial = lab.trial(kernel.forward, x, weight, bias, 1e-5, seconds=10)
    trial            # "layer_norm.forward returned after 12 ms", or all that is known of its end
    trial.result     # what it returned; raises if it did not return

A segmentation fault, an illegal address on the GPU, an endless loop: in the notebook's own process
each would end that process, or poison its GPU context, and every tensor with it.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import torch

import jitload
from lab.checker.report import Report
from lab.checker.run import check

HINTS = {
    "SIGSEGV": "It touched memory that is not its own: look for an index past the end of a tensor.",
    "SIGBUS": "It touched memory that is not its own: look for an index past the end of a tensor.",
    "SIGABRT": "It was aborted: a C++ exception that nobody caught, or a damaged heap.",
    "SIGFPE": "Most often a division of whole numbers by zero.",
    "SIGKILL": "Somebody else killed it; most often the system, when memory runs out.",
}
GRACE = 0.7  # seconds that an interrupted child has to end its compilers
PATIENCE = 10.0  # seconds that one which hangs has to write down where it is
BUILDING = 300.0  # seconds that a check may take for its builds and its report


@dataclass(frozen=True)
class Call:
    """What the child is to run: a kernel's function (recipe and name), or a Python function.

    launch: what stands between the brackets, where it is a kernel that Python launches.
    """

    what: str
    recipe: Any  # a kernel's, else None
    function: Callable | str
    args: tuple
    kwargs: dict[str, object]
    launch: Any = None

    @classmethod
    def of(cls, function: Callable, args: tuple, kwargs: dict[str, object]) -> Call:
        launch = None
        if isinstance(function, jitload.Launch):
            launch, function = function.given, function.function
        for kernel in jitload.loaded():
            for name, candidate in vars(kernel).items():
                if candidate is function:
                    what = f"{kernel.name}.{name}"
                    return cls(what, kernel.recipe, name, args, kwargs, launch)
        if function is check:
            return cls(f"lab.check of {_name(args)}", None, function, args, kwargs)
        if not callable(function):
            raise TypeError(f"function: {function!r} cannot be called")
        module, name = (getattr(function, a, None) for a in ("__module__", "__qualname__"))
        name = name or type(function).__qualname__
        what = name if module in (None, "__main__") else f"{module}.{name}"
        return cls(what, None, function, args, kwargs)

    def prepared(self) -> Callable[[], object]:
        """In the child: all that comes before the call itself, a build if need be."""
        function = self.loaded()
        return lambda: function(*self.args, **self.kwargs)

    def loaded(self) -> Callable:
        """In the child: the function to be called, built if need be."""
        function = self.function
        if self.recipe:
            function = getattr(jitload.handle_for(self.recipe), self.function)
            if self.launch is not None:
                function = function[self.launch]
        return function


def _name(args: tuple) -> str:
    return getattr(args[0], "__qualname__", type(args[0]).__qualname__) if args else "nothing"


@dataclass(frozen=True)
class Trial:
    """How a call in a child process ended.

    outcome: "returned", "raised", "crashed" or "hung".
    report: in words, with all that is known; what the trial shows in a notebook.
    arguments: the tensors and other arguments as the call left them, for kernels that write into
        them; None unless it returned. The notebook's own are untouched.
    output: what the child printed.
    seconds: how long the call took, its process's start not counted.
    """

    outcome: str
    report: str
    seconds: float
    output: str = field(repr=False, default="")
    arguments: tuple | None = field(repr=False, default=None)
    _result: object = field(repr=False, default=None)

    @property
    def result(self) -> object:
        """What the call returned, on the device where it was.

        Raises:
            RuntimeError: it did not return; the message is the report.
        """
        if self.outcome != "returned":
            raise RuntimeError(self.report)
        return self._result

    def __str__(self) -> str:
        return self.report

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.report)


def trial(function: Callable, *args: object, seconds: float = 30.0, **kwargs: object) -> Trial:
    """Call `function(*args, **kwargs)` in a fresh process, and say how that ended.

    function: of a loaded kernel (`kernel.forward` or `kernel.add[grid, block]`; the child runs the
        build of its files as they are now), or any Python function, the notebook's own too, with
        what it refers to.
    args, kwargs: copied, tensors of a GPU through the host's memory.
    seconds: limit for the call; the start of the process, some seconds, does not count. With
        `lab.trial(lab.check, kernel.forward, x)` it is lab.check's, which then reports how far the
        kernels came.

    Raises TypeError if the function or an argument cannot be sent to another process, and
    KeyboardInterrupt, which names the kernel and the line, if it is stopped meanwhile.
    """
    if not seconds > 0:
        raise ValueError(f"seconds: {seconds!r}; wanted is a positive number")
    if function is check:
        kwargs = {"seconds": seconds, **kwargs}
        seconds += BUILDING
    call = Call.of(function, args, kwargs)
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = Path(name)
        try:
            torch.save(call, folder / "call.pt", pickle_module=cloudpickle)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"{call.what} or an argument of it cannot be sent to another process: {error}"
            ) from None
        status, took = _run(call.what, folder, seconds)
        return _judge(call, folder, status, took, _output(folder))


def signal_words(number: int) -> str:
    """A signal for people, as in "Segmentation fault (SIGSEGV)"."""
    return f"{signal.strsignal(number)} ({signal.Signals(number).name})"


def _run(what: str, folder: Path, limit: float) -> tuple[int | None, float]:
    """Run the child; return its exit status, None where it hung, and the seconds of the call.

    Raises KeyboardInterrupt if it is stopped: in one line, with what the child says of it.
    """
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.checker.trial_process", str(folder)],
            env=jitload.environment(CUDA_LAUNCH_BLOCKING="1"),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the notebook's stop button is ours to pass on
        )
        try:
            called = None
            while process.poll() is None:
                if called is None and (folder / "called").exists():
                    called = time.perf_counter()
                if called and time.perf_counter() - called > limit:
                    process.send_signal(signal.SIGUSR1)  # it writes down where it is, and ends
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(PATIENCE)
                    return None, limit
                time.sleep(0.01)
            return process.returncode, time.perf_counter() - (called or time.perf_counter())
        except KeyboardInterrupt as stop:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            jitload.in_one_line(stop, f"the trial of {what} was stopped{_where(folder)}")
            raise
        finally:
            process.kill()
            process.wait()


def _where(folder: Path) -> str:
    """What the child says of the place where it was interrupted."""
    try:
        return f": {(folder / 'stopped').read_text()}"
    except OSError:  # it had no time for it, as in a C function that does not return
        return ""


def _output(folder: Path) -> str:
    """What the child printed, and where it ended, without our own part of the stack."""
    own = r".*[/\\]lab[/\\]checker[/\\]trial(_process)?\.py"
    ours = rf'Extension modules: |  File "(<frozen runpy>|{own})"'
    lines = (folder / "output").read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if not re.match(ours, line)).strip()


def _judge(call: Call, folder: Path, status: int | None, took: float, output: str) -> Trial:
    if status == 0:
        end = torch.load(folder / "end.pt", weights_only=False)
        took = end["seconds"]
        if "error" in end:
            report = f"{call.what} raised after {_spoken(took)}:\n{end['error']}"
            return Trial("raised", report, took, output)
        found = str(end["result"]) if isinstance(end["result"], Report) else ""
        lines = [f"{call.what} returned after {_spoken(took)}", output, found]
        report = "\n".join(filter(None, lines))
        return Trial("returned", report, took, output, end["args"], end["result"])
    if status is None:
        outcome, happened = "hung", f"did not return within {took:g} s, and was ended"
        hint = "Look for a loop whose end never comes, or threads that wait for each other."
    elif status < 0:
        outcome = "crashed"
        happened = f"crashed after {_spoken(took)}: {signal_words(-status)}"
        hint = HINTS.get(signal.Signals(-status).name, "")
    else:
        outcome, hint = "crashed", ""
        happened = f"ended its process with status {status}"
    given = [_described(value) for value in call.args]
    given += [f"{name}={_described(value)}" for name, value in call.kwargs.items()]
    arguments = f"Arguments: {', '.join(given)}" if given else ""
    lines = [f"{call.what} {happened}.", hint, arguments, output]
    return Trial(outcome, "\n".join(filter(None, lines)), took, output)


def _spoken(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _described(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} {list(value.shape)} on {value.device}"
