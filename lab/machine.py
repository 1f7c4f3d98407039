"""The old name of lab.figure.machine, kept for a release."""

from lab.figure.machine import draw_machine, plot_roofline

__all__ = ["draw_machine", "plot_roofline"]
