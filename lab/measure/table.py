"""A table of measurements as notebooks and terminals show it."""

from __future__ import annotations

import html

import pandas

from lab.measure.timing import SIMULATOR_CLOCK

# Columns that a reader might take for a GPU's although the simulator ran.
OF_A_CLOCK = ("time_us", "spread_us", "clock", "gb_per_s", "percent_of_copy")


class Table(pandas.DataFrame):
    """A table that, shown as a whole, ends with words: of the times, and attrs["verdict"].

    Where only the simulator ran, predicted times are shown in place of its own, which say nothing
    of a GPU. They stay in the table: `table["time_us"]`.
    """

    def __repr__(self) -> str:
        return "\n".join([repr(self._shown()), *self._words()])

    def _repr_html_(self) -> str | None:
        table, words = self._shown()._repr_html_(), self._words()
        if not table or not words:
            return table
        return f"{table}<div>{'<br>'.join(map(html.escape, words))}</div>"

    def _shown(self) -> pandas.DataFrame:
        hidden = OF_A_CLOCK if self._predicted() else ()
        return pandas.DataFrame(self).drop(columns=[*hidden], errors="ignore")

    def _words(self) -> list[str]:
        gpu, verdict = self.attrs.get("predicted_for"), self.attrs.get("verdict", "")
        of_times = [f"Times are predicted for {gpu}, not measured."] * self._predicted()
        return of_times + verdict.splitlines()

    def _predicted(self) -> bool:
        """Whether there are predicted times, and the measured ones are all the CPU's."""
        if not self.attrs.get("predicted_for") or not {"clock", "predicted_us"} <= {*self.columns}:
            return False
        return bool((self["clock"] == SIMULATOR_CLOCK).any() and self["predicted_us"].notna().any())
