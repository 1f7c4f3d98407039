"""What a loader survives: the same scenarios for ours and for plain torch.utils.cpp_extension.load.

Each is played with real processes and real compilers, in a folder and a cache of its own. A
scenario raises Fails with what happened instead, or returns what is worth telling, or nothing.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.jit_cases import compilers_in, wait_for

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30  # seconds that a process may take before it is said to wait for ever
YESTERDAY = time.time() - 86400


class Fails(Exception):
    """What happened instead of what was wanted, in half a sentence."""


@dataclass(frozen=True)
class Loader:
    """One side of the comparison.

    code: defines `load(source, *flags, include=[])`, which returns what has `answer()`.
    caches: the environment that names a cache folder, and folders below it to be read alone.
    lock: the file that the build of a cache's kernel locks.
    prune: arguments of python -m that bound the cache; None where there is no such command.
    """

    name: str
    code: str
    caches: Callable[..., dict[str, str]]
    lock: Callable[[Path], Path]
    prune: tuple[str, ...] | None


@dataclass(frozen=True)
class Verdict:
    passed: bool
    told: str  # half a sentence, or nothing


# What plain load needs to call a function: a Python module, the kind of binding that it documents.
MODULE = """
    #include <Python.h>
    extern "C" int answer();
    static PyObject* call(PyObject*, PyObject*) { return PyLong_FromLong(answer()); }
    static PyMethodDef functions[] = {{"answer", call, METH_NOARGS, nullptr}, {}};
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", nullptr, -1, functions};
    #define INIT_(name) PyInit_##name
    #define INIT(name) INIT_(name)
    PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""


def ours(runtime: Path) -> Loader:
    """Our loader; the simulator's runtime is in the cache `runtime`."""
    return Loader(
        name="ours",
        code="""
            import jitload

            def load(source, *flags, include=()):
                return jitload.load(source, target="cpu", flags=flags, include=include)
        """,
        caches=lambda *folders: {"JITLOAD_CACHE": os.pathsep.join(map(str, [*folders, runtime]))},
        lock=lambda cache: cache / "locks" / f"{next(cache.glob('answer_*')).name}.lock",
        prune=("jitload", "prune", "--gigabytes", "0"),
    )


def plain(module: Path) -> Loader:
    """Plain load; MODULE is in the file `module`."""
    return Loader(
        name="plain load",
        code=f"""
            from torch.utils import cpp_extension

            def load(source, *flags, include=()):
                return cpp_extension.load(
                    "answer",
                    [source, {str(module)!r}],
                    extra_cflags=list(flags),
                    extra_include_paths=[os.path.abspath(folder) for folder in include],
                )
        """,
        caches=lambda *folders: {"TORCH_EXTENSIONS_DIR": str(folders[-1])},  # one, no layers
        lock=lambda cache: cache / "answer/lock",
        prune=None,
    )


LOAD = 'print(load("answer.cpp").answer())'


class Scene:
    """What a scenario plays with: a loader, a folder, and a cache in it."""

    def __init__(self, loader: Loader, folder: Path) -> None:
        self.loader, self.folder, self.cache = loader, folder, folder / "cache"
        self.environment = loader.caches(self.cache)
        self.privileged = True  # root may write anywhere, and ordinary users may not

    # ---- files

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def answer(self, value: object, before: str = "") -> Path:
        """The source: a function that returns `value`."""
        return self.write(
            "answer.cpp", f'{before}\nextern "C" int answer() {{ return {value}; }}\n'
        )

    def slow_answer(self, value: int) -> Path:
        """The same, and some seconds of work for the compiler."""
        return self.answer(f'std::regex_match("a", std::regex("a")) * {value}', "#include <regex>")

    def compiler(self, flags: str = "", version: str = "1.0") -> None:
        """From now on compile by a script that counts, and fills the disk where `full` exists."""
        script = self.write(
            "my-c++",
            f"""
            #!/usr/bin/env bash
            [ "$1" = --version ] && echo "my-c++ {version}" && exit
            arguments=("$@")
            case "$*" in *" -c "*answer.cpp*) echo >> "{self.folder}/compilations";; esac
            for i in "${{!arguments[@]}}"; do
                [ -e "{self.folder}/full" ] && [[ ${{arguments[i]}} == *.o ]] &&
                    [[ ${{arguments[i-1]}} == -o ]] && arguments[i]=/dev/full
            done
            exec c++ {flags} "${{arguments[@]}}"
            """,
        )
        script.chmod(0o755)
        self.environment["CXX"] = str(script)

    def compilations(self) -> int:
        """How often that script has compiled the source."""
        counted = self.folder / "compilations"
        return len(counted.read_text()) if counted.exists() else 0

    def libraries(self) -> list[Path]:
        return list(self.cache.rglob("answer*.so"))

    def files(self) -> int:
        return sum(path.is_file() for path in self.cache.rglob("*"))

    # ---- processes

    def start(self, code: str, file: str = "main.py") -> subprocess.Popen:
        """A fresh Python that knows `load` and runs `code` in this folder."""
        parts = ("import os, signal, sys, time", self.loader.code, code)
        self.write(file, "\n\n".join(map(textwrap.dedent, parts)))
        drop = []
        if not self.privileged and os.geteuid() == 0:
            drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        return subprocess.Popen(
            [*drop, sys.executable, file],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self, process: subprocess.Popen) -> str:
        """The next line that a process prints."""
        if not select.select([process.stdout], [], [], LIMIT)[0]:
            self.end(process)
            raise Fails(f"waits for ever (ended after {LIMIT} s)")
        return process.stdout.readline().strip()

    def finish(self, process: subprocess.Popen, limit: int = LIMIT) -> tuple[str, str]:
        """What a process printed, and what it said on stderr; Fails where it does not succeed."""
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end(process)
            raise Fails(f"waits for ever (ended after {limit} s)") from None
        if process.returncode < 0:
            raise Fails(f"the process dies of {signal.Signals(-process.returncode).name}")
        if process.returncode:
            raise Fails(self.last_error(err))
        return out.strip(), err

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def last_error(self, text: str) -> str:
        """The line of a traceback that names the exception, without this scene's folder."""
        found = re.findall(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Tool)\b.*", text, re.MULTILINE)
        line = (found or text.splitlines() or ["ends without a word"])[-1]
        line = line.replace(f"{self.folder}/", "").replace(str(self.folder), "")
        return textwrap.shorten(line, 100, placeholder=" ...")

    def run(self, code: str = LOAD, limit: int = LIMIT) -> str:
        return self.finish(self.start(code), limit)[0]

    def expect(self, wanted: object, code: str = LOAD, limit: int = LIMIT) -> None:
        """Run `code`, which must print `wanted`."""
        check_answer(" ".join(self.run(code, limit).split()), str(wanted))


def check_answer(answered: str, wanted: str) -> None:
    if answered != wanted:
        raise Fails(f"answers {answered}; right is {wanted}")


# ---- the scenarios, in the order in which they are told

SCENARIOS: dict[str, Callable[[Scene], str | None]] = {}


def scenario(name: str) -> Callable:
    def register(play: Callable[[Scene], str | None]) -> Callable:
        SCENARIOS[name] = play
        return play

    return register


@scenario("killed by SIGKILL while it compiles, then loaded again")
def killed(scene: Scene) -> str:
    scene.answer(1)
    scene.expect(1)
    whole = scene.files()
    moments = (0, 0.3, 0.6, 1.2)
    for number, moment in enumerate(moments):
        shutil.rmtree(scene.cache)
        scene.slow_answer(number)
        process = scene.start(LOAD)
        wait_for(lambda: compilers_in(scene.folder), "the compiler to start")
        time.sleep(moment)
        process.kill()
        process.communicate()
        scene.expect(number)
    wait_for(lambda: not compilers_in(scene.folder), "the last compilers to end")
    scene.answer(5)
    scene.expect(5)
    left = scene.files() - whole
    if left > 2 * whole:
        raise Fails(f"leaves {left} files behind")
    return f"at {len(moments)} moments"


@scenario("stopped by the notebook's stop button, then loaded again in the same process")
def stopped(scene: Scene) -> None:
    scene.slow_answer(3)
    process = scene.start(
        """
        try:
            load("answer.cpp")
        except BaseException:
            print("stopped", flush=True)
        sys.stdin.readline()
        print(load("answer.cpp").answer())
        """
    )
    wait_for(lambda: compilers_in(scene.folder), "the compiler to start")
    os.killpg(process.pid, signal.SIGINT)  # to the whole group, as Jupyter sends it
    scene.line(process)
    time.sleep(0.2)
    running = compilers_in(scene.folder)
    process.stdin.write("\n")
    out, _ = scene.finish(process)
    if running:
        raise Fails("the compilers go on")
    check_answer(out, "3")


@scenario("8 processes load one cold kernel at once")
def crowd(scene: Scene) -> str:
    scene.compiler()
    scene.slow_answer(8)
    processes = [scene.start(LOAD, f"main{i}.py") for i in range(8)]
    answers = {scene.finish(process, 2 * LIMIT)[0] for process in processes}
    if answers != {"8"}:
        raise Fails(f"they answer {', '.join(sorted(answers))}; right is 8")
    return built(scene, 1)


def built(scene: Scene, wanted: int) -> str:
    """Fails where the source was compiled another number of times."""
    count = scene.compilations()
    told = f"{count} build{'s' * (count != 1)}"
    if count != wanted:
        raise Fails(told)
    return told


@scenario("two processes with different flags at once")
def flags(scene: Scene) -> None:
    scene.answer("N")
    load = 'print(load("answer.cpp", "-DN={}").answer())'
    processes = [scene.start(load.format(n), f"main{n}.py") for n in (1, 2)]
    answers = [scene.finish(process)[0] for process in processes]
    if answers != ["1", "2"]:
        raise Fails(f"they answer {' and '.join(answers)}; right is 1 and 2")


@scenario("threads load at once")
def threads(scene: Scene) -> str:
    scene.compiler()
    scene.answer(9)
    scene.expect(
        "{9}",
        """
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            print(set(pool.map(lambda _: load("answer.cpp").answer(), range(8))))
        """,
    )
    return built(scene, 1)


@scenario("a stale lock file, of a process long gone")
def stale_lock(scene: Scene) -> None:
    scene.answer(4)
    scene.expect(4)
    lock = scene.loader.lock(scene.cache)
    for library in scene.libraries():
        library.unlink()
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("4711")
    scene.expect(4)


def damaged(damage: Callable[[bytes], bytes], scene: Scene) -> None:
    scene.answer(6)
    scene.expect(6)
    for library in scene.libraries():
        library.write_bytes(damage(library.read_bytes()))
    scene.expect(6)


SCENARIOS["a truncated library in the cache"] = partial(
    damaged, lambda data: data[: len(data) // 2]
)
SCENARIOS["a zeroed library in the cache"] = partial(damaged, lambda data: bytes(len(data)))


@scenario("a cache folder that is read-only")
def read_only(scene: Scene) -> str:
    scene.cache.mkdir()
    scene.cache.chmod(0o555)
    return told_of_the_cache(scene)


@scenario("a cache folder that cannot be made")
def cannot_be_made(scene: Scene) -> str:
    scene.cache.write_text("a file stands in its way")
    return told_of_the_cache(scene)


def told_of_the_cache(scene: Scene) -> str:
    """The load works without it, and says so, once."""
    scene.answer(2)
    scene.privileged = False
    out, err = scene.finish(scene.start(f"{LOAD}\n{LOAD}"))
    if out.split() != ["2", "2"]:
        raise Fails(f"answers {out}; right is 2 and 2")
    warned = len(re.findall(r"\w*Warning: ", err))
    if warned != 1:
        raise Fails(f"{warned} warnings")
    return "a temporary folder, with a warning"


@scenario("a full disk, then room again")
def full_disk(scene: Scene) -> None:
    scene.compiler()
    scene.answer(7)
    (scene.folder / "full").touch()
    process = scene.start(
        """
        try:
            load("answer.cpp")
        except Exception as error:
            print(str(error).replace("\\n", " "), flush=True)
        sys.stdin.readline()
        print(load("answer.cpp").answer())
        """
    )
    if not re.search("No space left|disk", said := scene.line(process)):
        raise Fails(f"the disk is not named: {textwrap.shorten(said, 80)}")
    (scene.folder / "full").unlink()
    process.stdin.write("\n")
    out, _ = scene.finish(process)
    check_answer(out, "7")


@scenario("a class's cache, read-only, a layer of one's own on top")
def shared(scene: Scene) -> None:
    scene.compiler()
    scene.answer(1)
    scene.expect(1)
    for path in (scene.cache, *scene.cache.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    scene.environment |= scene.loader.caches(scene.folder / "own", scene.cache)
    scene.privileged = False
    scene.expect(1)
    built(scene, 1)
    scene.answer(2)
    scene.expect(2)


@scenario("a file system without locks")
def no_locks(scene: Scene) -> None:
    scene.answer(5)
    scene.expect(
        5,
        f"""
        import errno, fcntl

        def refuse(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        fcntl.flock = fcntl.lockf = refuse
        {LOAD}
        """,
    )


def header(
    before: dict[str, str],
    change: str,
    wanted: str,
    scene: Scene,
    source: str = '#include "value.h"',
) -> None:
    """In one process: load, `change` the headers that were `before`, load again."""
    scene.answer("VALUE", source)
    for name, value in {"near/no.h": "0", "far/no.h": "0", **before}.items():
        scene.write(name, f"#define VALUE {value}\n")
    scene.expect(
        wanted,
        f"""
        from pathlib import Path

        def answer():
            try:
                return load("answer.cpp", include=["near", "far"]).answer()
            except Exception as error:
                return "error" if "value.h" in str(error) else repr(error)

        print(answer())
        {change}
        print(answer())
        """,
    )


EXTRA = """
#define VALUE 1
#if __has_include("value.h")
#undef VALUE
#include "value.h"
#endif
"""
HEADERS = {
    "edited": ({"far/value.h": "1"}, 'Path("far/value.h").write_text("#define VALUE 2")', "1 2"),
    "removed": ({"far/value.h": "1"}, 'Path("far/value.h").unlink()', "1 error"),
    "shadowed": ({"far/value.h": "1"}, 'Path("near/value.h").write_text("#define VALUE 2")', "1 2"),
}
for _name, _case in HEADERS.items():
    SCENARIOS[f"a header {_name}, in one process"] = partial(header, *_case)
SCENARIOS["a header added, in one process"] = partial(
    header, {}, 'Path("near/value.h").write_text("#define VALUE 2")', "1 2", source=EXTRA
)


@scenario("a source deleted while loaded, then back")
def deleted(scene: Scene) -> None:
    scene.answer(1)
    scene.expect(
        "1 answer.cpp 2",
        """
        from pathlib import Path

        kernel, source = load("answer.cpp"), Path("answer.cpp")
        text = source.read_text()
        source.unlink()
        print(kernel.answer())
        try:
            load("answer.cpp")
        except OSError as error:
            print("answer.cpp" if "answer.cpp" in str(error) else error)
        source.write_text(text.replace("1", "2"))
        print(load("answer.cpp").answer())
        """,
    )


@scenario("the clock goes back: an edit that is older than the build")
def clock(scene: Scene) -> None:
    scene.answer(1)
    scene.expect(1)
    os.utime(scene.answer(2), (YESTERDAY, YESTERDAY))
    scene.expect(2)


@scenario("a path with spaces and non-ASCII letters")
def path(scene: Scene) -> None:
    place = scene.folder / "Übung 1 – naïve"
    scene.folder, scene.cache = place, place / "cache"
    scene.environment |= scene.loader.caches(scene.cache)
    scene.write("headers/value.h", "#define VALUE 3")
    scene.answer("VALUE", '#include "value.h"')
    scene.expect(3, 'print(load("answer.cpp", include=["headers"]).answer())')


@scenario("the compiler is upgraded")
def upgraded_compiler(scene: Scene) -> None:
    scene.answer("MADE_BY")
    for version in (1, 2):
        scene.compiler(flags=f"-DMADE_BY={version}", version=f"{version}.0")
        scene.expect(version)


@scenario("the compiler is gone, the build is cached")
def missing_compiler(scene: Scene) -> None:
    scene.compiler()
    scene.answer(3)
    scene.expect(3)
    Path(scene.environment["CXX"]).unlink()
    scene.expect(3)


@scenario("torch is upgraded (another version string; the source includes none of its headers)")
def upgraded_torch(scene: Scene) -> str:
    scene.compiler()
    scene.answer(1)
    scene.expect(1)
    scene.expect(1, f'import torch\ntorch.__version__ = "99.0"\n{LOAD}')
    return built(scene, 2)


WORKERS = """
    import torch

    class Answers(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return load("answer.cpp").answer()

    if __name__ == "__main__":
        print(Answers()[0])
        loader = torch.utils.data.DataLoader(
            Answers(), num_workers=2, multiprocessing_context="{}", timeout=20
        )
        print(*[batch.item() for batch in loader])
"""


def workers(method: str, scene: Scene) -> None:
    scene.answer(5)
    scene.expect("5 5 5 5 5", WORKERS.format(method))


SCENARIOS["forked DataLoader workers"] = partial(workers, "fork")
SCENARIOS["spawned DataLoader workers"] = partial(workers, "spawn")


@scenario("200 reloads of one kernel in one process")
def reloads(scene: Scene) -> str:
    """Memory may grow by as much as the same libraries take, opened by ctypes, and as much again
    for what Python knows of them."""
    scene.answer(0)
    code = """
        import contextlib, ctypes, gc, shutil
        from pathlib import Path

        def resident():
            gc.collect()
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        source = Path("answer.cpp")
        text = source.read_text()

        def reload(number):
            source.write_text(text.replace("0", str(number)))
            answered = load("answer.cpp").answer()
            assert answered == number, f"answers {answered}; right is {number}"

        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            for number in range(20):
                reload(number)
            before = resident()
            for number in range(20, 220):
                reload(number)
        grown = resident() - before
        library = next(Path("cache").rglob("answer*.so"))
        opened = []
        for number in range(220):
            if number == 20:
                before = resident()
            opened.append(ctypes.CDLL(shutil.copy(library, f"./copy{number}.so")))
            opened[-1].answer()
        print(grown // 200, (resident() - before) // 200)
    """
    grown, bare = map(int, scene.run(code, 600).split())
    told = f"{grown / 1e3:.0f} kB a reload, its library {bare / 1e3:.0f} kB"
    if grown > 2 * bare:
        raise Fails(told)
    return told


@scenario("the cache is bounded, what a living process uses stays")
def prune(scene: Scene) -> None:
    scene.answer(1)
    process = scene.start(
        """
        kernel = load("answer.cpp")
        print(kernel.answer(), flush=True)
        sys.stdin.readline()
        print(load("answer.cpp").answer())
        """
    )
    scene.line(process)
    used = set(scene.libraries())
    for value in (2, 3):
        scene.answer(value)
        scene.expect(value)
    if not scene.loader.prune:
        scene.end(process)
        raise Fails("no such command")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **scene.environment}
    command = [sys.executable, "-m", *scene.loader.prune]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    left = set(scene.libraries())
    scene.answer(1)
    process.stdin.write("\n")
    out, _ = scene.finish(process)
    if out != "1":
        raise Fails(f"the living process answers {out}; right is 1")
    if left != used:
        raise Fails(f"{len(left)} builds left; {len(used)} is used")


@scenario("a cache folder that other users can write to is refused")
def open_to_others(scene: Scene) -> None:
    scene.cache.mkdir()
    scene.cache.chmod(0o777)
    scene.answer(1)
    try:
        scene.run()
    except Fails as refused:
        if "PermissionError" in str(refused):
            return
        raise
    raise Fails("what lies there is loaded")


# ---- playing them


def play(loader: Loader, name: str) -> Verdict:
    """One scenario in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(loader, Path(folder))
        try:
            return Verdict(True, SCENARIOS[name](scene) or "")
        except Fails as failed:
            return Verdict(False, str(failed))


def play_all(
    say: Callable[[str], None], only: str = ""
) -> tuple[tuple[str, ...], dict[str, tuple[Verdict, ...]]]:
    """The loaders' names, and their verdicts by scenario; as many at once as there are cores.

    `say` is told each verdict as it comes; `only` chooses by a part of the name.
    """
    with tempfile.TemporaryDirectory() as name:
        module = Path(name, "module.cpp")
        module.write_text(textwrap.dedent(MODULE).lstrip("\n"))
        runtime = Path(name, "runtime")
        loaders = (ours(runtime), plain(module))
        build = (
            "import jitload; jitload.announce = False; jitload._ensure(jitload._runtime_recipe())"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JITLOAD_CACHE": str(runtime)}
        subprocess.run([sys.executable, "-c", build], env=environment, check=True)

        def judged(name: str, loader: Loader) -> Verdict:
            verdict = play(loader, name)
            outcome = "pass" if verdict.passed else "fail"
            say(f"{outcome}  {loader.name}: {name}{verdict.told and f': {verdict.told}'}")
            return verdict

        names = [name for name in SCENARIOS if only in name]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            waiting = {
                name: [pool.submit(judged, name, loader) for loader in loaders] for name in names
            }
        verdicts = {
            name: tuple(future.result() for future in futures) for name, futures in waiting.items()
        }
        return tuple(loader.name for loader in loaders), verdicts
