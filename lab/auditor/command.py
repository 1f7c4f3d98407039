"""`python -m lab audit MODULE:FUNCTION`: an audit from the shell.

python -m lab audit kernels.square:square
python -m lab audit my.ops:softplus --reference torch.nn.functional:softplus "float32[64, 33]"
python -m lab audit my.ops:scale --reference my.ops:scale_in_torch my.ops:example --json
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Callable

import torch

import jitload
from lab.auditor.run import SECONDS, audit

OK, FOUND, WRONG_USE = 0, 1, 2
_TENSOR = re.compile(r"(\w+)\[([\d, ]*)\](?: *< *(\d+))?")


def main(words: list[str]) -> int:
    """Run `audit`; return 0 for no trap, 1 for any, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m lab audit", description="Try every known trap on an op."
    )
    parser.add_argument("op", metavar="MODULE:FUNCTION")
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="ARGUMENT",
        help="of one right call: a tensor such as 'float32[64, 33]' or 'int64[64] < 33', a number,"
        " or MODULE:FUNCTION, which returns all of them; the ops of reference.py need none",
    )
    parser.add_argument("--reference", metavar="MODULE:FUNCTION", help="the same in PyTorch's ops")
    parser.add_argument("--sources", nargs="+", metavar="FILE", help="of what is not compiled here")
    parser.add_argument("--only", nargs="+", metavar="TRAP", help="names or sections of traps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that one trap may take")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page")
    try:
        given = parser.parse_intermixed_args(words)
    except SystemExit as end:
        return WRONG_USE if end.code else OK
    if jitload.default_target() == "cpu":  # beside the op, which its module may compile
        jitload.build_simulator_beside(with_checker=not given.only)
    try:
        reference = resolved(given.reference) if given.reference else None
        report = audit(
            resolved(given.op),
            inputs_of(given.inputs, given.seed) if given.inputs else None,
            reference=reference,
            sources=given.sources,
            only=given.only,
            seed=given.seed,
            seconds=given.seconds,
        )
    except (ValueError, TypeError, ImportError, AttributeError, OSError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return WRONG_USE
    print(report.to_json() if given.json else report, flush=True)
    try:
        if given.html:
            report.save(given.html)
    except OSError as error:
        print(f"audit: --html: {error}", file=sys.stderr)
        return WRONG_USE
    return OK if report.ok else FOUND


def resolved(name: str) -> Callable:
    """The object that MODULE:NAME refers to.

    Raises ValueError if the name has another form or the module fails to import, ImportError or
    AttributeError if the module or the attribute does not exist.
    """
    module, colon, path = name.partition(":")
    if not colon or not path:
        raise ValueError(f"{name!r}: wanted is MODULE:FUNCTION, as in kernels.square:square")
    try:
        found = importlib.import_module(module)
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(f"{module}: its import raises {_told(error)}") from error
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def inputs_of(words: list[str], seed: int) -> tuple | dict:
    """The arguments that the words of a command line describe."""
    if len(words) == 1 and ":" in words[0]:
        example = resolved(words[0])
        try:
            return example()
        except Exception as error:
            raise ValueError(f"{words[0]} raises {_told(error)}") from error
    dice = torch.Generator().manual_seed(seed)
    return tuple(_value(word, dice) for word in words)


def _value(word: str, dice: torch.Generator) -> object:
    if not (found := _TENSOR.fullmatch(word.strip())):
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError):
            raise ValueError(
                f"{word!r}: wanted is a tensor, as in 'float32[64, 33]', or a number"
            ) from None
    dtype = getattr(torch, found[1], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{word!r}: torch has no type {found[1]!r}")
    shape = [int(it) for it in found[2].split(",") if it.strip()]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=dice).to(dtype)
    return torch.randint(int(found[3] or 2), shape, generator=dice).to(dtype)
