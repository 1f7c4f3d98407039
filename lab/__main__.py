"""`python -m lab watch OP`: see `lab.watcher.terminal`."""

import os
import sys

from lab.watcher.terminal import watch


def main() -> int:
    """Carry out the command line; returns the exit status."""
    if sys.argv[1:2] != ["watch"]:
        print("usage: python -m lab watch OP [options]; --help says which", file=sys.stderr)
        return 2
    return watch(sys.argv[2:])


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # to end in order takes torch longer than Ctrl-C should
