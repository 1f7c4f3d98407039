"""Each trap in turn, as a row of the report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from lab.auditor.example import Example
from lab.auditor.frameworks import settings_back
from lab.auditor.report import FAIL, NOT_RUN, NOTE, OK, REFUSED, Row
from lab.auditor.subject import FAILED, Found, NotRun, Refused, Subject
from lab.auditor.traps import Trap


def subject(request: tuple) -> Subject:
    """The op under audit, built from the arguments of `audit`."""
    function, call, reference, shapes, sources, seed = request
    return Subject(function, Example.of(call, reference, shapes), seed, sources=sources)


CRASHED = "See lab.check of this call: most often an index is past the end, or a launch is empty."


def tried(made: Subject, chosen: Iterable[Trap]) -> Iterator[Row]:
    """Each trap in turn, as a row. Uses one thread, which is faster for tensors this small."""
    for trap in chosen:
        began = time.perf_counter()
        with settings_back():  # each call is drawn from this one
            made.example.call = replace(made.example.call, constant=made.constant)
        row = _row(trap, made)
        took = round(time.perf_counter() - began, 3)
        yield Row(**(vars(row) | {"seconds": took}))


def _row(trap: Trap, made: Subject) -> Row:
    try:
        with settings_back():
            torch.set_num_threads(1)
            said = trap.find(made)
    except Found as found:
        verdict = NOTE if found.note else FAIL
        advice = CRASHED if FAILED.search(found.message) else trap.advice
        return Row(
            *(trap.section, trap.name, verdict, found.message, found.example),
            *(found.line, advice),
        )
    except Refused as error:
        return Row(trap.section, trap.name, REFUSED, str(error))
    except NotRun as why:
        return Row(trap.section, trap.name, NOT_RUN, str(why))
    except Exception as error:  # neither a refusal nor a finding: no verdict
        said = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        if FAILED.search(said):
            return Row(trap.section, trap.name, FAIL, said, "", "", CRASHED)
        return Row(trap.section, trap.name, NOT_RUN, said)
    if trap.section == "autograd" and said.startswith("refused: ") and FAILED.search(said):
        return Row(trap.section, trap.name, FAIL, said[9:], str(made.example.call), "", CRASHED)
    if said.startswith("refused: "):
        return Row(trap.section, trap.name, REFUSED, said.removeprefix("refused: "))
    return Row(trap.section, trap.name, OK, said)


def ended(trap: Trap, how: str) -> Row:
    """The row of a trap whose process did not survive it."""
    return Row(trap.section, trap.name, FAIL, how, advice=trap.advice)


def dumped(row: Row) -> str:
    return json.dumps(vars(row))
