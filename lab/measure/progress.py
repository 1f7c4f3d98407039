"""A progress bar for measurements, removed when they are done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 0.5  # before anything is shown


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[str], None]]:
    """Counts steps up to `total` (None: nobody knows) and shows them, if they take their time:

        with progress(12) as step:
            step("layer_norm forward float32 4096 x 1024, eager")  # what is being done now

    It is tqdm's bar: a widget in a notebook, a line of stderr in a terminal, and nothing where
    stderr is no terminal. It is taken away at the end, after an exception too.
    """
    from tqdm.auto import tqdm

    bar = tqdm(total=total, leave=False, delay=SECONDS, miniters=1, disable=None)

    def step(text: str) -> None:
        bar.set_description_str(text, refresh=False)  # a refresh would not wait for the delay
        bar.update()

    try:
        yield step
    finally:
        bar.total = bar.n  # a widget that has not reached its total would stay
        bar.close()
