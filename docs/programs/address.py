"""Put the repository's address, which pyproject.toml has, where else it has to stand.

    .venv/bin/python -m docs.programs.address

Those places are the badges of README.md and the notebook that they open.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from docs.programs.page import ROOT

NOTEBOOK = "docs/anywhere.ipynb"
BADGES = "<!-- python -m docs.programs.address writes the next line -->\n"
UNKNOWN = "OWNER"  # in the place of whoever has published the repository


def address() -> str:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    return tool["kernel-playground"]["repository"]


def badges(address: str) -> str:
    """A line for Colab and one for Binder, in one; both take a repository of GitHub.

    Raises:
        ValueError: it is not one.
    """
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)
    if not found:
        raise ValueError(
            f"pyproject.toml has {address!r}; wanted is https://github.com/{UNKNOWN}/NAME"
        )
    colab = f"https://colab.research.google.com/github/{found[1]}/blob/main/{NOTEBOOK}"
    binder = f"https://mybinder.org/v2/gh/{found[1]}/main?urlpath=lab/tree/{NOTEBOOK}"
    line = (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
        f" [![Open in Binder](https://mybinder.org/badge_logo.svg)]({binder})"
    )
    if f"/{UNKNOWN}/" in address:
        line += f" (once `{UNKNOWN}` in pyproject.toml is whoever publishes this repository)"
    return line


def readme(text: str, address: str) -> str:
    before, mark, after = text.partition(BADGES)
    if not mark:
        raise ValueError(f"README.md: wanted is the line {BADGES}")
    _, _, rest = after.partition("\n")
    return f"{before}{mark}{badges(address)}\n{rest}"


def notebook(text: str, address: str) -> str:
    text, found = re.subn(r"(REPOSITORY = \\\").*?(\\\")", rf"\g<1>{address}\g<2>", text)
    if found != 1:
        raise ValueError(f'{NOTEBOOK}: wanted is one line REPOSITORY = "..."')
    return text


WRITTEN: dict[Path, Callable[[str, str], str]] = {
    ROOT / "README.md": readme,
    ROOT / NOTEBOOK: notebook,
}

if __name__ == "__main__":
    for path, rewritten in WRITTEN.items():
        path.write_text(rewritten(path.read_text(), address()))
