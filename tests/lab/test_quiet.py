"""A cell is timed with nobody beside, while others compile."""

import contextlib
import fcntl
import importlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.bench import quiet

LATER = time.time() + 3600


@pytest.fixture
def is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Says whether another process could have the GPU."""
    benchmarker = importlib.import_module("torch._inductor.runtime.benchmarking").benchmarker
    for name in ("benchmark", "benchmark_gpu"):
        monkeypatch.setattr(benchmarker, name, getattr(benchmarker, name))
    monkeypatch.setattr(quiet, "_gpu", quiet._Gpu())
    quiet.share(tmp_path / "gpu.lock")

    def ask() -> bool:
        with (tmp_path / "gpu.lock").open("w") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    return ask


def test_others_have_the_gpu_while_one_compiles(is_free: Callable[[], bool]):
    with quiet.alone(LATER):
        assert not is_free()
        with quiet.compiling():
            assert is_free()
        assert not is_free()
    assert is_free()


def test_a_launch_that_the_compiler_times_has_the_gpu_alone(is_free: Callable[[], bool]):
    benchmarker = importlib.import_module("torch._inductor.runtime.benchmarking").benchmarker
    seen = set()
    with quiet.alone(LATER), quiet.compiling():
        benchmarker.benchmark(lambda: seen.add(is_free()), device="cpu")
        assert is_free()
    assert seen == {False}


def with_suppressed_errors(call: Callable[[float], None], seconds: float) -> None:
    with contextlib.suppress(Exception):
        call(seconds)


def test_a_compiler_is_stopped_at_the_deadline(is_free: Callable[[], bool]):
    """Though it goes on after any Exception."""
    with pytest.raises(quiet.OutOfTimeError), quiet.alone(time.time()), quiet.compiling():
        with_suppressed_errors(time.sleep, 60)
    assert is_free()


def test_without_others_nothing_is_locked():
    with quiet.alone(time.time()), quiet.compiling():
        time.sleep(0.01)
