"""A call in a separate process: a failure there does not harm the notebook.

    trial = lab.trial(kernel.forward, x, weight, bias, 1e-5, seconds=10)
    trial            # "layer_norm.forward returned after 12 ms", or how it ended and why
    trial.result     # what it returned; raises if it did not return

A segmentation fault, an illegal address on the GPU or an endless loop in the notebook's own process
would end that process, or break its CUDA context, and lose every tensor in it.
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
GRACE = 0.7  # seconds for an interrupted child to end its compilers
PATIENCE = 10.0  # seconds for a hanging child to record where it is
BUILDING = 300.0  # seconds for the builds and the report of a check


@dataclass(frozen=True)
class Call:
    """What the child runs: a kernel's function (recipe and name), or a Python function.

    launch: the launch configuration in the brackets, for a kernel launched from Python.
    """

    what: str
    recipe: Any  # for a kernel, else None
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
        """In the child: everything before the call itself, including a build if needed."""
        function = self.loaded()
        return lambda: function(*self.args, **self.kwargs)

    def loaded(self) -> Callable:
        """In the child: the function to call, built if needed."""
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
    report: text with everything known; what the trial shows in a notebook.
    arguments: the tensors and other arguments after the call, for kernels that write to them; None
        unless it returned. The notebook's own are untouched.
    output: the child's printed output.
    seconds: the time of the call, without the start of the process.
    """

    outcome: str
    report: str
    seconds: float
    output: str = field(repr=False, default="")
    arguments: tuple | None = field(repr=False, default=None)
    _result: object = field(repr=False, default=None)

    @property
    def result(self) -> object:
        """The call's result, on the device where it was.

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
    """Call `function(*args, **kwargs)` in a fresh process, and report how it ended.

    function: of a loaded kernel (`kernel.forward` or `kernel.add[grid, block]`; the child runs the
        build of its files as they are now), or any Python function, the notebook's own too, with
        what it refers to.
    args, kwargs: copied; GPU tensors go through host memory.
    seconds: limit for the call, without the process's start of some seconds. With
        `lab.trial(lab.check, kernel.forward, x)` it becomes lab.check's limit, which then reports
        how far the kernels came.

    Raises TypeError if the function or an argument cannot be sent to another process. If the trial
    is interrupted, it raises a KeyboardInterrupt that names the kernel and the line.
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
    """A signal in readable form, as in "Segmentation fault (SIGSEGV)"."""
    return f"{signal.strsignal(number)} ({signal.Signals(number).name})"


def _run(what: str, folder: Path, limit: float) -> tuple[int | None, float]:
    """Run the child; return its exit status (None if it hung), and the seconds of the call.

    Raises KeyboardInterrupt if interrupted, with the child's position in one line.
    """
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.checker.trial_process", str(folder)],
            env=jitload.environment(CUDA_LAUNCH_BLOCKING="1"),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # we forward the notebook's interrupt
        )
        try:
            called = None
            while process.poll() is None:
                if called is None and (folder / "called").exists():
                    called = time.perf_counter()
                if called and time.perf_counter() - called > limit:
                    process.send_signal(signal.SIGUSR1)  # it records where it is, and ends
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
    """The place where the child says that it was interrupted."""
    try:
        return f": {(folder / 'stopped').read_text()}"
    except OSError:  # it had no time to write it, as in a C function that does not return
        return ""


def _output(folder: Path) -> str:
    """The child's output, and where it ended, without our own stack frames."""
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
