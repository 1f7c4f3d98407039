"""Pictures of chapter 10: cross entropy."""

from matplotlib.figure import Figure

from lab import figure as drawing

TARGET, OTHERS = "#D55E00", "#0072B2"


def gradients(logits: list[float], gradients: dict[str, list[float]], target: int) -> Figure:
    """The logits of a row as bars, and below them gradients; the target's bar leaves its panel."""
    with drawing.style():
        figure, panels = drawing.grid(1 + len(gradients), 1, (6.4, 1.3), sharex=True)
        drawn = {"logits": logits, **gradients}
        for (axes,), (name, values) in zip(panels, drawn.items(), strict=True):
            for label, color, columns in (
                ("the target", TARGET, [target]),
                ("the other classes", OTHERS, [c for c in range(len(values)) if c != target]),
            ):
                axes.bar(columns, [values[c] for c in columns], color=color, label=label)
            axes.axhline(0, color="0.4", linewidth=0.8)
            axes.set_title(name)
            if name in gradients:
                axes.set_ylim(-0.12, 0.14)
                axes.text(target + 1, -0.1, f"{values[target]:.2f}", color=TARGET, fontsize=8)
        axes.set_xlabel("class")
        return drawing.finish(figure, "A row and its gradient", "")
