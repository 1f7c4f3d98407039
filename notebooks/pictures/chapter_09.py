"""Pictures of chapter 9: dropout and random numbers."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lab import figure as drawing

ELEMENTS = 32  # of the masks in `owners`
KEPT, DROPPED, MARK = "#0072B2", "#E4E4E4", "#D55E00"


def bits() -> Figure:
    """Of sixteen elements: whose are the bits of two draws?"""
    lines = {
        "element": [str(i) for i in range(16)],
        "its 16 bits": ["lower", "upper"] * 8,
        "word": [f"word {i % 4}" for i in range(8)],
        "counter": [f"Philox(seed, counter = ({i}, offset))" for i in range(2)],
    }
    shades = ["#D6E6F2", "#7FB2D9", "#F5DDC0", "#E6A65C"]
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (7.4, 1.8))
        for level, (name, texts) in enumerate(lines.items()):
            each = 16 / len(texts)
            for k, text in enumerate(texts):
                word = int(k * each / 2)
                shade = shades[2 * k + 1 if name == "counter" else word % 2 + 2 * (word // 4)]
                axes.barh(level, each - 0.06, left=k * each + 0.03, height=0.8, color=shade)
                axes.text((k + 0.5) * each, level, text, ha="center", va="center", fontsize=8)
        axes.set(xlim=(0, 16), ylim=(3.6, -0.6), xticks=[], yticks=range(4), yticklabels=lines)
        _bare(axes)
        return drawing.finish(figure, "Which element gets which bits", "")


def owners(masks: dict[str, list[bool]], threads: dict[str, dict[int, range]]) -> Figure:
    """Masks of forward and backward, one below the other, with marks where the two differ.

    masks: "GENERATOR, PASS" in pairs. threads: the elements of each thread, by pass.
    """
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (7.4, 1.8))
        for level, (name, kept) in enumerate(masks.items()):
            of = {i: t for t, mine in threads[name.split(", ")[1]].items() for i in mine}
            for i, keep in enumerate(kept):
                label = "kept" if keep else "dropped"
                color = KEPT if keep else DROPPED
                axes.barh(level, 0.92, left=i + 0.04, height=0.8, color=color, label=label)
                ink = {"ha": "center", "va": "center", "color": "white" if keep else "0.45"}
                axes.text(i + 0.5, level, of[i], fontsize=7, **ink)
            if level % 2:
                before = list(masks.values())[level - 1]
                for i in range(ELEMENTS):
                    if kept[i] != before[i]:
                        ends = [i + 0.06, i + 0.94]
                        axes.plot(ends, [level - 0.5] * 2, color=MARK, label="not the same")
        axes.set(xlim=(0, ELEMENTS), ylim=(3.6, -0.6), yticks=range(4), yticklabels=masks)
        axes.set(xticks=range(0, ELEMENTS + 1, 8), xlabel="element")
        _bare(axes)
        caption = "the number in a box is that of the thread that has the element"
        return drawing.finish(figure, "The same mask twice?", caption)


def two_masks(masks: dict[str, Tensor], worst: Callable[[Tensor], Tensor]) -> Figure:
    """Masks as images, with the largest correlation of an element with one of those before it."""
    with drawing.style():
        figure, (panels,) = drawing.grid(1, len(masks), (4.0, 2.4))
        for axes, (name, mask) in zip(panels, masks.items(), strict=True):
            axes.imshow(mask, cmap="gray", aspect="auto", interpolation="nearest")
            axes.set_title(f"{name}: {worst(mask):.0f} standard errors")
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
        caption = (
            "white is kept, black is dropped; the number is the largest correlation of an element"
            " with one of the 512 before it"
        )
        return drawing.finish(figure, "Two masks", caption)


def honesty(rates: dict[float, float], neighbours: dict[str, Tensor], allowed: float) -> Figure:
    """Deviations in standard errors: of the rates, by p, and of elements from those before them."""
    with drawing.style():
        figure, ((left, right),) = drawing.grid(1, 2, (4.0, 2.8), sharey=True)
        left.semilogy(range(len(rates)), rates.values(), "o", color="#0072B2")
        left.set_xticks(range(len(rates)), map(str, rates), rotation=90, fontsize=8)
        left.set(title="rate", xlabel="p", ylabel="off by (standard errors)", ylim=(5e-3, 200))
        for (name, values), color in zip(neighbours.items(), ["#E69F00", "#0072B2"], strict=True):
            apart = range(1, len(values) + 1)
            right.plot(apart, values, "o", markersize=4, color=color, label=name)
        right.set(title="neighbours", xlabel="elements apart", xticks=range(0, len(values) + 1, 8))
        for axes in (left, right):
            axes.axhline(allowed, color="0.5", linestyle=":", label="allowed")
        return drawing.finish(figure, "Is the mask honest?", "")


def _bare(axes: Axes) -> None:
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
