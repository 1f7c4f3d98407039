"""`python -m lab watch OP`, `audit MODULE:FUNCTION`, `judge TASK FILE...`, `trace FILE.cu`, `mcp`.

See `lab.watcher.terminal`, `lab.auditor.command`, `lab.judge.command` and `server`, and
`lab.tracer.program`.
"""

import importlib
import os
import sys

COMMANDS = {
    "watch": "lab.watcher.terminal:watch",
    "audit": "lab.auditor.command:main",
    "trace": "lab.tracer.program:trace",
    "judge": "lab.judge.command:main",
    "mcp": "lab.judge.server:main",
}


def main() -> int:
    """Run the command line; return the exit status."""
    home = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if home is None:
        wanted = "|".join(COMMANDS)
        print(f"usage: python -m lab {wanted} ...; --help says what follows", file=sys.stderr)
        return 2
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)(sys.argv[2:])


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # an orderly exit of torch takes longer than Ctrl-C should
