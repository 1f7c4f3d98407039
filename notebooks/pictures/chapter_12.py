"""Pictures of chapter 12: bindings."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from lab import figure as drawing

WAYS = ("#D55E00", "#009E73", "#E69F00", "#0072B2")


def costs(
    measured: dict[str, dict[str, float]],
    predicted: dict[str, dict[str, float]],
    torchs: dict[str, float],
) -> Figure:
    """Bars of seconds and microseconds, a mark where they were predicted, a line for PyTorch's.

    measured: by way, then "seconds", "call" and "with gradient". predicted: by one of these, then
    by way. torchs: of torch.square, by "call" and "with gradient".
    """
    titles = {
        "seconds": "to compile (s)",
        "call": "a call on one number (µs)",
        "with gradient": "and its gradient (µs)",
    }
    with drawing.style():
        figure, (panels,) = drawing.grid(1, 3, (2.7, 0.5 + 0.32 * len(measured)), sharey=True)
        for axes, (what, title) in zip(panels, titles.items(), strict=True):
            values = [of[what] for of in measured.values()]
            marks = [predicted.get(what, {}).get(way) for way in measured]
            bars = axes.barh(list(measured), values, height=0.6, color="#0072B2")
            white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=4, bbox=white)
            look = {"marker": "d", "color": "white", "edgecolor": "0.2", "zorder": 3}
            for way, mark in zip(measured, marks, strict=True):
                if mark is not None:
                    axes.scatter(mark, way, label="predicted", **look)
            if what in torchs:
                axes.axvline(torchs[what], **drawing.COPY_LINE, label="torch.square")
            axes.set_xlim(0, 1.3 * max(values + [mark for mark in marks if mark is not None]))
            axes.set_title(title)
        panels[0].invert_yaxis()
        return drawing.finish(figure, "What a binding costs", "")


def slower(
    sizes: Sequence[int], micros: dict[str, Sequence[float]], knees: dict[str, float]
) -> Figure:
    """How many times as long as the fastest way each one takes, and where it was said to be equal.

    knees: the number of elements from which on each way's cost was predicted to be hidden.
    """
    fastest = [min(times) for times in zip(*micros.values(), strict=True)]
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.6, 2.8))
        for (name, times), color in zip(micros.items(), WAYS, strict=False):
            ratios = [time / least for time, least in zip(times, fastest, strict=True)]
            axes.plot(sizes, ratios, "o-", markersize=4, color=color, label=name)
            axes.axvline(knees[name], color=color, linestyle=":")
        axes.plot([], [], ":", color="0.4", label="predicted to be hidden")
        axes.set_xscale("log", base=2)
        axes.set(xlabel="elements", ylabel="times the time of the fastest", ylim=0)
        return drawing.finish(figure, "From what size on all are as fast", "")


def words(
    results: dict[str, dict[str, str]], shown: dict[str | None, tuple[str, str]], title: str
) -> Figure:
    """A table of results, each a cell with a word and a colour: shown[result], or shown[None]."""
    rows, columns = list(results), list(next(iter(results.values())))
    with drawing.style():
        panel = 1.05 * len(columns), 0.1 + 0.36 * len(rows)
        figure, ((axes,),) = drawing.grid(1, 1, panel)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                word, color = shown.get(results[row][column], shown[None])
                axes.bar(j + 0.5, 0.88, 0.94, i + 0.06, color=color)
                axes.text(j + 0.5, i + 0.5, word, ha="center", va="center", fontsize=9)
        axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
        axes.set_yticks([k + 0.5 for k in range(len(rows))], rows)
        axes.set_xticks([k + 0.5 for k in range(len(columns))], columns)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        return drawing.finish(figure, title, "")
