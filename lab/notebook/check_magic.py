"""`%%check [OPTIONS]`: the call on which a cell ends, by `lab.check`.

    %%check
    x = torch.randn(1000)
    scale.twice(x, torch.empty_like(x), x.numel())

`%check scale.twice(x, y, n)` is the same on one line. `--errors` leaves the traffic out, `--order`
shuffles threads and blocks, `--threads` is how many of a launch are recorded in full, `--seconds`
how long the kernels may take.
"""

import ast
import functools
import shlex
from collections.abc import Callable

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser

from lab.checker.report import Report
from lab.checker.run import SECONDS, check

_arguments = MagicArgumentParser(prog="%%check", add_help=False)
_arguments.add_argument("--errors", dest="traffic", action="store_false")
_arguments.add_argument("--order", dest="thread_order", type=int, default=0)
_arguments.add_argument("--threads", dest="sample_threads", type=int)
_arguments.add_argument("--seconds", type=float, default=SECONDS)


@magics_class
class Checks(Magics):
    @line_cell_magic("check")
    def check(self, line: str, cell: str | None = None) -> Report:
        """Check the call on which the cell ends; or on one line: %check f(x)

        %%check [--errors] [--order N] [--threads N] [--seconds S]
        """
        options = _arguments.parse_args(shlex.split(line) if cell is not None else [])
        checked = functools.partial(check, **vars(options))
        return last_call(self.shell, "%%check", line if cell is None else cell, checked)


def last_call(shell: InteractiveShell, magic: str, cell: str, instead: Callable) -> object:
    """Run a cell that ends on a call f(x); of that return what `instead(f, x)` does.

    Raises UsageError if it does not end on one.
    """
    tree = ast.parse(shell.transform_cell(cell))
    call = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if not isinstance(call, ast.Call):
        raise UsageError(f"{magic}: wanted is a cell that ends on a call, such as scale(x)")
    call.args.insert(0, call.func)
    call.func = ast.copy_location(ast.Name("__instead__", ast.Load()), call)
    before = ast.Module(tree.body[:-1], [])
    names = shell.user_ns
    exec(compile(before, f"<{magic}>", "exec"), names)
    code = compile(ast.Expression(call), f"<{magic}>", "eval")
    return eval(code, names, {"__instead__": instead})
