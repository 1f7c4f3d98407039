"""Edits of sources and headers, other compilers and releases of PyTorch, and many reloads."""

import os
import time
from pathlib import Path

from tests.helpers.scenarios.scene import LOAD, Scene

YESTERDAY = time.time() - 86400
SHADOW = 'Path("near/value.h").write_text("#define VALUE 2")'


def header_edited(scene: Scene) -> None:
    """a header edited, in one process"""
    _header(scene, 'Path("far/value.h").write_text("#define VALUE 2")', "1 2")


def header_removed(scene: Scene) -> None:
    """a header removed, in one process"""
    _header(scene, 'Path("far/value.h").unlink()', "1 error")


def header_shadowed(scene: Scene) -> None:
    """a header shadowed, in one process"""
    _header(scene, SHADOW, "1 2")


def header_added(scene: Scene) -> None:
    """a header added, in one process"""
    source = """
        #define VALUE 1
        #if __has_include("value.h")
        #undef VALUE
        #include "value.h"
        #endif
    """
    _header(scene, SHADOW, "1 2", source, there=False)


def _header(
    scene: Scene, change: str, wanted: str, source: str = '#include "value.h"', there: bool = True
) -> None:
    """In one process: load, `change` the headers, load again; far/value.h may be `there` before."""
    scene.answer("VALUE", source)
    for name in ("near", "far"):
        scene.write(f"{name}/no.h", "#define VALUE 0\n")
    if there:
        scene.write("far/value.h", "#define VALUE 1\n")
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


def deleted(scene: Scene) -> None:
    """a source deleted while loaded, then back"""
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


def clock(scene: Scene) -> None:
    """the clock goes back: an edit that is older than the build"""
    scene.answer(1)
    scene.expect(1)
    os.utime(scene.answer(2), (YESTERDAY, YESTERDAY))
    scene.expect(2)


def path(scene: Scene) -> None:
    """a path with spaces and non-ASCII letters"""
    place = scene.folder / "Übung 1 – naïve"
    scene.folder, scene.cache = place, place / "cache"
    scene.environment |= scene.loader.caches(scene.cache)
    scene.write("headers/value.h", "#define VALUE 3")
    scene.answer("VALUE", '#include "value.h"')
    scene.expect(3, 'print(load("answer.cpp", include=["headers"]).answer())')


def upgraded_compiler(scene: Scene) -> None:
    """the compiler is upgraded"""
    scene.answer("MADE_BY")
    for release, version in ((1, ""), (2, "my-c++ 2.0")):
        scene.compiler(f"-DMADE_BY={release}", version)
        scene.expect(release)


def missing_compiler(scene: Scene) -> None:
    """the compiler is gone, the build is cached"""
    scene.compiler()
    scene.answer(3)
    scene.expect(3)
    Path(scene.environment["CXX"]).unlink()
    scene.expect(3)


def upgraded_torch(scene: Scene) -> str:
    """torch is upgraded (another version string; the source includes none of its headers)"""
    scene.compiler()
    scene.answer(1)
    scene.expect(1)
    scene.expect(1, f'import torch\ntorch.__version__ = "99.0"\n{LOAD}')
    return scene.expect_builds(2)


def reloads(scene: Scene) -> str:
    """200 reloads of one kernel in one process

    Memory may grow by as much as the same libraries take, opened by ctypes, and as much again
    for what Python knows of them.
    """
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
    assert grown <= 2 * bare, told
    return told
