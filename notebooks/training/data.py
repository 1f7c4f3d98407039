"""Something to learn without a download: this project's own prose and sources, in words.

    text = words(vocabulary=256)              # int64, from the first word to the last
    tokens, targets = batch(text, step=0, size=8, length=32)

A token is a word with the blank before it, a digit, or a run of other signs.
"""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import lab

# In a clone both are its folder; installed from a wheel the lab lies elsewhere.
ROOTS = dict.fromkeys(
    (Path(__file__).resolve().parents[2], Path(lab.__file__).resolve().parents[1])
)
FOLDERS = ("docs", "kernels", "lab", "notebooks", "simulator", "tests", "toolchain")
ENDINGS = (".md", ".py", ".cu", ".cuh", ".cpp", ".h", ".ipynb")
WORD = re.compile(r" ?[A-Za-z]+|\d|\s+| ?[^\w\s]+|_|\w")


@cache
def words(vocabulary: int) -> Tensor:
    """The whole text; the commonest words are numbers below the vocabulary, and all others 0."""
    common = Counter(_found()).most_common(vocabulary - 1)
    numbers = {word: number for number, (word, _) in enumerate(common, 1)}
    return torch.tensor([numbers.get(word, 0) for word in _found()])


def batch(text: Tensor, step: int, size: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens [size, length] of places that the number of the step decides, and what follows each.

    So any process can make any part of any step's batch.
    """
    generator = torch.Generator().manual_seed(step)
    places = torch.randint(len(text) - length, (size, 1), generator=generator)
    windows = text[places + torch.arange(length + 1)]
    return windows[:, :-1], windows[:, 1:]


@cache
def _found() -> list[str]:
    ours = (path for root in ROOTS for path in sorted(_paths(root)) if path.suffix in ENDINGS)
    return WORD.findall("\n".join(map(_text, ours)))


def _paths(root: Path) -> list[Path]:
    paths = [*root.glob("*.*"), *(path for name in FOLDERS for path in (root / name).rglob("*.*"))]
    return [path for path in paths if _is_ours(path.relative_to(root).parts)]


def _is_ours(parts: tuple[str, ...]) -> bool:
    return not any(part == "scratch" or part.startswith((".", "_")) for part in parts[:-1])


def _text(path: Path) -> str:
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
