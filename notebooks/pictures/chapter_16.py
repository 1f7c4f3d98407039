"""Pictures of chapter 16: who waits for whom."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from lab import figure as drawing

WAITS, WORKS = "0.85", ("#0072B2", "#E69F00", "#009E73")
Span = tuple[float, float, float]  # began to wait, had waited, was done


def lanes(cases: dict[str, dict[str, Sequence[Span]]], unit: str) -> Figure:
    """For each case a picture, and in it a lane for each warp: grey where it waits.

    cases: of each case the lanes by their names, and of a lane a span for each step.
    """
    with drawing.style():
        height = 0.6 + 0.42 * max(len(each) for each in cases.values())
        figure, rows = drawing.grid(len(cases), 1, (7.4, height))
        end = max(s[2] for each in cases.values() for lane in each.values() for s in lane)
        for (axes,), (title, each) in zip(rows, cases.items(), strict=True):
            for at, spans in enumerate(each.values()):
                for step, (began, waited, done) in enumerate(spans):
                    axes.barh(at, waited - began, 0.62, began, color=WAITS)
                    axes.barh(at, done - waited, 0.62, waited, color=WORKS[at], edgecolor="white")
                    if done - waited > 0.025 * end:
                        axes.text((waited + done) / 2, at, step, color="white", fontsize=8,
                                  ha="center", va="center")  # fmt: skip
                    elif done - waited > 0.006 * end:  # too narrow for a number, so it stands above
                        axes.text((waited + done) / 2, at - 0.34, step, color="0.3", fontsize=6,
                                  ha="center", va="bottom")  # fmt: skip
            axes.set_yticks(range(len(each)), each)
            axes.set(xlim=(0, end), ylim=(len(each) - 0.5, -0.65))
            axes.set_title(title, loc="left", fontsize=9)
            axes.grid(False)
        axes.set_xlabel(unit)
        return drawing.finish(figure, "Who waits for whom: grey is waiting, numbers are steps", "")
