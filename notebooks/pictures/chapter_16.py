"""Pictures of chapter 16: descriptors, and who waits for whom."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lab import figure as drawing

WAITS, WORKS = "0.85", ("#0072B2", "#E69F00", "#009E73")
FIELDS = {  # of a matrix descriptor: the first bit, the last one, the colour
    "address / 16": (0, 13, "#0072B2"),
    "leading offset / 16": (16, 29, "0.75"),
    "stride offset / 16": (32, 45, "#E69F00"),
    "base\noffset": (49, 51, "0.75"),
    "swizzle": (62, 63, "#D55E00"),
}
K_BLOCKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
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


def descriptor(fields: dict[str, int]) -> Figure:
    """The bits of a matrix descriptor, and what it says of the first eight rows of a tile.

    fields: the value of each field, by its name in FIELDS.
    """
    with drawing.style():
        figure, rows = drawing.grid(2, 1, (7.4, 2.0), height_ratios=(1, 2.6))
        (bits,), (tile,) = rows
        for name, (first, last, color) in FIELDS.items():
            width = last + 1 - first
            bits.add_patch(Rectangle((64 - last - 1, 0), width, 1, color=color, alpha=0.85))
            words = f"{name}\n{fields[name]}" if name in fields else name
            narrow = width < 3  # too narrow for its name, which stands beside it
            at, ha = (64 - first + 0.4, "left") if narrow else (64 - first - width / 2, "center")
            bits.text(at, 0.5, words, ha=ha, va="center", fontsize=7)
        bits.set(xlim=(0, 64), ylim=(0, 1), yticks=[])
        bits.set_xticks([64 - bit - 0.5 for bit in (0, 13, 29, 45, 62)], (0, 13, 29, 45, 62))
        bits.set_xlabel("bit", fontsize=7)
        bits.grid(False)
        for row in range(8):
            for chunk in range(8):
                place = chunk ^ row
                color = K_BLOCKS[chunk // 2]
                tile.add_patch(
                    Rectangle((place, row), 1, 1, facecolor=color, alpha=0.55, edgecolor="white")
                )
                words = f"k {8 * chunk} to {8 * chunk + 7}"
                tile.text(place + 0.5, row + 0.5, words, ha="center", va="center", fontsize=6.5)
        tile.set(xlim=(0, 8), ylim=(8, 0))
        tile.set_xticks([i + 0.5 for i in range(8)], [16 * i for i in range(8)])
        tile.set_yticks([i + 0.5 for i in range(8)], [f"row {i}, byte {128 * i}" for i in range(8)])
        tile.set_xlabel("byte of the row in shared memory")
        tile.grid(False)
        caption = "colours: the 16 of k that descriptor + 0, + 2, + 4 and + 6 multiply"
        return drawing.finish(figure, "A matrix descriptor, and eight rows of its tile", caption)


def one_step() -> Figure:
    """Who works and who waits in one step of a product by TMA and wgmma."""
    lanes_ = ("thread 0", "TMA", "all threads", "tensor cores")
    works = [  # lane, begin, end, colour, words
        (0, 0, 1.3, WORKS[0], "expect\nbytes"),
        (0, 1.3, 2.6, WORKS[0], "tma_load\n2 times"),
        (1, 2.6, 7.0, WORKS[1], "tiles of a and b arrive"),
        (2, 2.6, 7.0, WAITS, "wait(full, parity)"),
        (2, 7.0, 8.0, WORKS[0], "fence"),
        (2, 8.0, 9.6, WORKS[0], "wgmma\n4 times"),
        (2, 9.6, 10.7, WORKS[0], "commit"),
        (2, 10.7, 13.6, WAITS, "wgmma_wait"),
        (2, 13.6, 15.0, WORKS[0], "read sums"),
        (3, 8.3, 13.6, WORKS[2], "sums += a bᵀ, four times 16 of k"),
    ]
    orders = [  # from lane and time, to lane and time
        ((0, 2.6), (1, 2.6)),
        ((1, 7.0), (2, 7.0)),
        ((2, 8.3), (3, 8.3)),
        ((3, 13.6), (2, 13.6)),
    ]
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (7.4, 2.6))
        for lane, begin, end, color, words in works:
            axes.barh(lane, end - begin, 0.62, begin, color=color, edgecolor="white")
            ink = "0.2" if color == WAITS else "white"
            axes.text((begin + end) / 2, lane, words, color=ink, fontsize=6.5, ha="center",
                      va="center")  # fmt: skip
        for (lane, begin), (to, end) in orders:
            axes.annotate("", (end, to), (begin, lane),
                          arrowprops={"arrowstyle": "->", "color": "0.3"})  # fmt: skip
        axes.set_yticks(range(4), lanes_)
        axes.set(xlim=(0, 15.2), ylim=(3.6, -0.6), xticks=[])
        axes.set_xlabel("time, not to scale")
        axes.grid(False)
        return drawing.finish(
            figure, "One step: grey is waiting; at an arrow one starts the other, or wakes it", ""
        )
