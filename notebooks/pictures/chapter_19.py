"""Pictures of chapter 19: what a transformer keeps for its backward pass."""

from matplotlib.figure import Figure

from lab.style.drawing import BLUE, GREEN, ORANGE, PURPLE, VERMILLION
from notebooks.pictures.chapter_13 import stacked

PARTS = {"attention": BLUE, "gated layer": GREEN, "norms": VERMILLION, "loss": PURPLE,
         "rest": ORANGE}  # fmt: skip
PART_OF = {
    "attention": "attention",
    "gated": "gated layer",
    "first": "norms",
    "after_attention": "norms",
    "after_gated": "norms",
    "head": "loss",
}  # the part in the picture, by the name of the module


def by_part(kept: dict[str, float]) -> dict[str, float]:
    """What `kept_by_part` counts, by the parts of the picture."""
    parts = dict.fromkeys(PARTS, 0.0)
    for name, size in kept.items():
        parts[PART_OF.get(name, "rest")] += size
    return parts


def kept(ways: dict[str, dict[str, float]], title: str, xlabel: str) -> Figure:
    """A bar for each way, of what each part of its model keeps."""
    return stacked({way: by_part(of) for way, of in ways.items()}, PARTS, title, xlabel)
