"""The system's browser, for tests of what a page looks like and of JupyterLab."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

needs_browser = pytest.mark.skipif(
    BROWSER is None or not find_spec("playwright"),
    reason=f"needs playwright, and one of {', '.join(NAMES)} on the PATH",
)


@contextmanager
def browser() -> Iterator["Browser"]:
    """The browser, started, for a test with the mark `needs_browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()
