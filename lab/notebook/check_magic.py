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

from IPython.core.error import UsageError
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
        tree = ast.parse(self.shell.transform_cell(line if cell is None else cell))
        call = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if not isinstance(call, ast.Call):
            raise UsageError("%%check: wanted is a cell that ends on a call, such as scale(x)")
        call.args.insert(0, call.func)
        call.func = ast.copy_location(ast.Name("__check__", ast.Load()), call)
        before = ast.Module(tree.body[:-1], [])
        names = self.shell.user_ns
        exec(compile(before, "<%%check>", "exec"), names)
        checked = functools.partial(check, **vars(options))
        code = compile(ast.Expression(call), "<%%check>", "eval")
        return eval(code, names, {"__check__": checked})
