"""What the tests of the loader share."""

import os

import pytest


@pytest.fixture
def own(tmp_path, cache, monkeypatch):
    """An empty cache of this test's own, the simulator's runtime beside it."""
    folder = tmp_path / "own cache"
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(folder), str(cache)]))
    monkeypatch.setattr("jitloader.handle._kernels", {})
    return folder
