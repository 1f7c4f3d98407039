"""`%%audit [OPTIONS]`: the call on which a cell ends, by `lab.audit`.

    %%audit --reference torch.nn.functional.softplus
    x = torch.randn(100, 33)
    softplus(x)

`%audit softplus(x)` is the same on one line, for an op that has its reference in reference.py.
`--reference` is an expression, `--only` a trap or a section of them, `--seed` a number.
"""

import shlex
from collections.abc import Callable

from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser

from lab.auditor.report import Audit
from lab.auditor.run import audit
from lab.notebook.check_magic import last_call

_arguments = MagicArgumentParser(prog="%%audit", add_help=False)
_arguments.add_argument("--reference")
_arguments.add_argument("--only", nargs="+")
_arguments.add_argument("--seed", type=int, default=0)


@magics_class
class Audits(Magics):
    @line_cell_magic("audit")
    def audit(self, line: str, cell: str | None = None) -> Audit:
        """Audit the op that a cell calls last; or on one line: %audit f(x)

        %%audit [--reference FUNCTION] [--only TRAP...] [--seed N]
        """
        given = _arguments.parse_args(shlex.split(line) if cell is not None else [])
        names = self.shell.user_ns

        def audited(function: Callable, *args: object, **kwargs: object) -> Audit:
            reference = eval(given.reference, names) if given.reference else None
            inputs = kwargs if kwargs and not args else args
            return audit(function, inputs, reference=reference, only=given.only, seed=given.seed)

        return last_call(self.shell, "%%audit", line if cell is None else cell, audited)
