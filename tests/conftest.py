"""Fixtures of the loader's tests."""

import os
from pathlib import Path

import pytest

import jitload

# Processes that tests start, kernels of notebooks too, import the project without an install.
_root = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_root, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all of these tests, away from the user's, with the simulator's runtime."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(folder))
        jitload._ensure(jitload._runtime_recipe())
    return folder


@pytest.fixture
def in_scratch(tmp_path, cache, monkeypatch):
    """The working directory is an empty folder."""
    monkeypatch.setenv("JITLOAD_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
