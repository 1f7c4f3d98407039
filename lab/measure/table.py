"""A table of measurements that says in words whether the results are right."""

from __future__ import annotations

import html

import pandas


class Table(pandas.DataFrame):
    """A table that ends with a verdict where it is shown as a whole: attrs["verdict"]."""

    def __repr__(self) -> str:
        verdict = self.attrs.get("verdict", "")
        return f"{super().__repr__()}\n{verdict}" if verdict else super().__repr__()

    def _repr_html_(self) -> str | None:
        table, verdict = super()._repr_html_(), self.attrs.get("verdict", "")
        if not table or not verdict:
            return table
        return f"{table}<div>{'<br>'.join(map(html.escape, verdict.splitlines()))}</div>"
