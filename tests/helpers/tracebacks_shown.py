"""What a person sees of an error, in plain Python and in a notebook."""

import re
import sys
from pathlib import Path

from jit_cases import in_script, write

from tests.helpers.forks import Fork


def shown_by_python(code: str) -> list[str]:
    path = write("script.py", code)
    return in_script(path).communicate(timeout=120)[1].splitlines()


def shown_by_ipython(code: str) -> list[str]:
    """What a notebook's cell shows, without its colours."""
    path = write("cell.py", code)
    program = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='nocolor')\n"
        "shell.run_cell(open(sys.argv[1]).read())"
    )
    said, _ = Fork([sys.executable, "-c", program, str(path)]).communicate(timeout=120)
    return re.sub(r"\x1b\[[\d;]*m", "", said).splitlines()


def files_shown(lines: list[str]) -> set[str]:
    """Of a traceback's frames."""
    return {Path(name).name for name in re.findall(r'File "?([^",:]+\.py)', "\n".join(lines))}
