"""What tests share: the loader's fixtures, and which files of the book are a reader's by now."""

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

# Side by side, each process has a core. PyTorch's threads wait for each other spinning, and two on
# a core wait for most of the time: the tests of the ops took 386 s, with one thread each 64 s.
if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import jitload
from jitloader import building, derivatives, runtime
from jitloader.cache import Cache
from lab.measure import nvml
from tests.helpers.threads import wait_for_others

# Processes that tests start, kernels of notebooks too, import the project without an install.
_root = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_root, os.environ.get("PYTHONPATH")]))


# A shell ignores SIGINT for what it starts in the background, and so do all that this starts: tests
# that interrupt a kernel would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Left to make test-all are products in the versions between the first and the last, products
    under the checker, and wide rows of an op that multiplies several times. The longest begin."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        case = params.get("case")
        is_product = getattr(case, "is_product", False)
        is_long = is_product and case.op.weights and params.get("cols", 0) > 2000
        if is_long or (is_product and (case.is_between or "checker" in item.path.parts)):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where all tests run side by side, the others build ops while the first process collects.

    So it compiles the tests' modules, which takes Python twelve seconds, for all of them.
    """
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if not is_first and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        import op_cases  # noqa: F401 - it builds them


def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than there are cores: many tests wait, for a browser or for what is killed.

    But no more than there is memory for. None leaves it to PYTEST_XDIST_AUTO_NUM_WORKERS.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return max(1, min(cores() + 1, free_memory() // 1_500_000_000))


def cores(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Those that this process may use: a container may have a share of the machine's."""
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # ValueError: it may have "max"
        quota, period = map(int, (groups / "cpu.max").read_text().split())
        count = min(count, -(-quota // period))
    return count


def free_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that processes may still take. Each that runs tests takes up to 1.5 GB, with what it
    compiles meanwhile."""
    free = 1 << 60
    with contextlib.suppress(OSError):  # of other systems than Linux
        lines = Path("/proc/meminfo").read_text().splitlines()
        (found,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        free = 1024 * int(found)
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int((groups / "memory.max").read_text()))
    return free


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests by the ten thousand are no garbage: to see that took a third of collecting them, and
    later a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all of these tests, away from the user's, with the simulator's runtime, the
    checker, and what records gradients.

    Where tests run side by side, in several processes, these share it. What stands in it first is
    copied from the user's, for these compile for some ten seconds each; and the simulator's
    headers are parsed for it, for kernels and for kernels that are checked.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    square = jitload.recipe_of(["square"], target="cpu")
    recipes = square, runtime.recipe(), runtime.checker_recipe(), derivatives.recipe()
    builds = list(map(building.ensure, recipes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(folder))
        own = Cache.here()
    for build in builds:
        with own.lock(build.name) as alone, own.workplace(build.name, alone) as work:
            if not (folder / build.name).exists():
                shutil.copytree(build.folder, work / "result")
                own.place(work / "result", build.name)
    (base / "nothing.cu").write_text("__global__ void nothing() {}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(folder))
        nothing = jitload.recipe_of([base / "nothing.cu"], target="cpu")
        for check in (False, True):
            building.ensure(replace(nothing, check=check))
    return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Makes a folder of a name, once for all processes that share the tests; the path of it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, begun = base / name, base / f"{name} begun"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                shutil.rmtree(begun, ignore_errors=True)
                begun.mkdir()
                make(begun)
                begun.rename(folder)
        return folder

    return folder_of


@pytest.fixture(autouse=True, scope="module")
def nothing_goes_on() -> Generator[None]:
    """A thread that a module's tests leave computing takes a core from all tests after it."""
    yield
    if not wait_for_others():
        pytest.fail("a test has left a thread that computes on: let it sleep, or end it")


@pytest.fixture
def gpu_alone() -> None:
    """Skips a test that judges a GPU's speed while another process uses that GPU."""
    if not torch.cuda.is_available():
        return
    gpu = nvml.gpu()
    if gpu and gpu.others(time.time() - 1):
        pytest.skip("another process uses the GPU, so that no speed can be judged")


@pytest.fixture
def in_scratch(tmp_path, cache, monkeypatch):
    """The working directory is an empty folder."""
    monkeypatch.setenv("JITLOAD_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


_users_cache = os.environ.get("JITLOAD_CACHE")


@pytest.fixture
def users_cache(in_scratch, monkeypatch):
    """In an empty folder, with the cache that the tests began with, where the ops are built."""
    if _users_cache is None:
        monkeypatch.delenv("JITLOAD_CACHE", raising=False)
    else:
        monkeypatch.setenv("JITLOAD_CACHE", _users_cache)


@pytest.fixture
def forked(monkeypatch):
    """The processes of lab.trial and lab.audit are forks of one that has imported PyTorch."""
    from tests.helpers import forks  # late, as few tests need it

    own = SimpleNamespace(**vars(subprocess) | {"Popen": forks.Fork})
    for module in ("checker.trial", "auditor.process"):
        monkeypatch.setattr(f"lab.{module}.subprocess", own)


@pytest.fixture
def forked_kernels(monkeypatch):
    """Kernels of notebooks are forks of a process that has imported PyTorch and ipykernel."""
    from tests.helpers import forks  # late, as few tests need it

    launch = "jupyter_client.provisioning.local_provisioner.launch_kernel"
    monkeypatch.setattr(launch, forks.kernel)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--edited",
        action="store_true",
        help="test chapters and exercises that were edited since they were published, too",
    )


@pytest.fixture
def published(request) -> Callable[..., None]:
    """Skips a test about chapters or exercises that somebody has edited: those are a reader's.

    None is skipped in CI without a failure, for there `publish.py --check` wants all as published.
    """

    from notebooks import publish  # late: to import nbformat takes a second

    def require(*paths: Path) -> None:
        edited = [publish.shown(path) for path in paths if publish.edited(path)]
        if edited and not request.config.getoption("--edited"):
            pytest.skip(f"run or edited since published (pytest --edited): {', '.join(edited)}")

    return require
