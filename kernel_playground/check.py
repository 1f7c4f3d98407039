"""kernel-playground check: what `lab.check` says of a program, of a script, or of an op."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jitload
from lab.checker.links import save
from lab.checker.program import check_program
from lab.checker.report import Report
from lab.checker.run import SECONDS
from lab.checker.run import check as lab_check
from lab.measure import arguments
from lab.watcher.op_subject import OpSubject
from lab.watcher.settings import settings_for

CLEAN, FOUND, NOT_RUN = 0, 1, 2  # exit statuses
FAILED = (OSError, RuntimeError, SyntaxError, TypeError, ValueError)

_WHAT = """\
WHAT is one of these, and what stands behind it is its own:

  FILE.cu [MORE.cu .cpp] [-I.. -D..] [-- ARGUMENTS]   a program with a main()
  FILE.py [ARGUMENTS]                                 a script that calls kernels
  OP                                                  an op of the playground, as layer_norm

The exit status is 1 where there are findings, 2 where nothing could be checked."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="kernel-playground check",
        usage="kernel-playground check [OPTIONS] WHAT ...",
        description="Run kernels on the CPU's simulator, and say what is wrong line by line.",
        epilog=_WHAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--errors", action="store_true", help="leave the traffic out")
    made.add_argument("--order", type=int, default=0, help="of threads: 0 ascends, others shuffle")
    made.add_argument("--threads", type=int, help="how many of a launch are recorded in full")
    made.add_argument("--seconds", type=float, default=SECONDS, help="that the kernels may take")
    made.add_argument("--html", metavar="PAGE", help="write a page in which findings open traces")
    made.add_argument("what", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def check(words: list[str]) -> int:
    """Carry out the command line; returns the exit status."""
    asked = parser().parse_args(words)
    if not asked.what:
        parser().error("wanted is a FILE.cu, a FILE.py or the name of an op")
    options = {
        "traffic": not asked.errors,
        "thread_order": asked.order,
        "sample_threads": asked.threads,
        "seconds": asked.seconds,
    }
    found, shown = 0, []
    try:
        for report in reports(asked.what, options):
            print(report, end="\n\n", flush=True)
            found += sum(report.findings["severity"] == "error")
            shown.append(report)
        if asked.html:
            print(save(shown, asked.html))
    except BrokenPipeError:
        raise
    except FAILED as error:
        print(f"kernel-playground check: {error}", file=sys.stderr)
        return NOT_RUN
    return FOUND if found else CLEAN


def reports(what: list[str], options: dict[str, object]) -> Iterator[Report]:
    """A report for each call. what: see _WHAT."""
    name = what[0]
    if name.endswith(".py"):
        yield lab_check(_script(what), **options)
    elif not Path(name).suffix and not name.startswith("-"):
        arguments.an_op(name)
        yield from _of_op(name, options)
    else:
        line = jitload.ProgramLine.parse(what)
        if not line.sources:
            raise ValueError(f"{name} is no FILE.cu, no FILE.py and no op")
        yield check_program(line.sources, line.flags, line.arguments, **options)


def _script(what: list[str]) -> Callable[[], None]:
    """A call that runs the script as Python would."""
    path = Path(what[0])

    def script() -> None:
        sys.argv[:] = what
        sys.path.insert(0, str(path.resolve().parent))
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit:
            pass
        except Exception as error:
            traceback.print_exception(error)
            raise RuntimeError(f"{path} raised {type(error).__name__}") from None

    script.__qualname__ = path.name
    return script


def _of_op(name: str, options: dict[str, object]) -> Iterator[Report]:
    """Reports of the op, forward and backward, on a small shape."""
    subject = OpSubject(name)
    settings = settings_for(arguments.an_op(name), None, "float32", False, None, {})
    for backward in (False, True):
        small = replace(settings, backward=backward).for_check()
        report = subject.report(small, **options)
        report.what = f"{name}, {small}"
        yield report
