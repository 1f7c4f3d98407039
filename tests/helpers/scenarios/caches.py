"""Caches that are damaged, out of reach, full, shared, without locks, bounded, open to others."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable

from tests.helpers.scenarios.scene import LOAD, ROOT, Fails, Scene, expect_answer


def truncated_library(scene: Scene) -> None:
    """a truncated library in the cache"""
    _damaged(scene, lambda data: data[: len(data) // 2])


def zeroed_library(scene: Scene) -> None:
    """a zeroed library in the cache"""
    _damaged(scene, lambda data: bytes(len(data)))


def _damaged(scene: Scene, damage: Callable[[bytes], bytes]) -> None:
    scene.answer(6)
    scene.expect(6)
    for library in scene.libraries():
        library.write_bytes(damage(library.read_bytes()))
    scene.expect(6)


def read_only(scene: Scene) -> str:
    """a cache folder that is read-only"""
    scene.cache.mkdir()
    scene.cache.chmod(0o555)
    return _done_without(scene)


def cannot_be_made(scene: Scene) -> str:
    """a cache folder that cannot be made"""
    scene.cache.write_text("a file stands in its way")
    return _done_without(scene)


def _done_without(scene: Scene) -> str:
    """The load works without the folder, says so once, and leaves nothing behind."""
    scene.compiler()
    scene.answer(2)
    temporary = scene.folder / "temporary"
    temporary.mkdir()
    scene.environment["TMPDIR"] = str(temporary)
    scene.privileged = False
    out, err = scene.finish(scene.start(f"{LOAD}\n{LOAD}"))
    expect_answer(" and ".join(out.split()), "2 and 2")
    warnings = re.findall(r"\w*Warning: .*", err)
    assert len(warnings) == 1, f"{len(warnings)} warnings"
    assert str(scene.cache) in warnings[0], "the folder is not named"
    scene.expect_builds(1)
    assert not list(temporary.iterdir()), "the temporary folder stays"
    return "a temporary folder, with a warning"


def full_disk(scene: Scene) -> None:
    """a full disk, then room again"""
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
    said = scene.line(process)
    named = re.search("No space left|disk", said)
    assert named, f"the disk is not named: {textwrap.shorten(said, 80)}"
    assert not scene.libraries(), "half a library stays"
    (scene.folder / "full").unlink()
    expect_answer(scene.go_on(process), 7)


def shared(scene: Scene) -> None:
    """a class's cache, read-only, a layer of one's own on top"""
    scene.compiler()
    scene.answer(1)
    scene.expect(1)
    for path in (scene.cache, *scene.cache.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    scene.environment |= scene.loader.caches(scene.folder / "own", scene.cache)
    scene.privileged = False
    scene.expect(1)
    scene.expect_builds(1)
    scene.answer(2)
    scene.expect(2)


def no_locks(scene: Scene) -> None:
    """a file system without locks"""
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


def prune(scene: Scene) -> None:
    """the cache is bounded, what a living process uses stays"""
    assert scene.loader.prune, "no such command"
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
    _prune(scene)
    left = set(scene.libraries())
    scene.answer(1)
    answered = scene.go_on(process)
    assert answered == "1", f"the living process answers {answered}; right is 1"
    assert left == used, f"{len(left)} builds left; {len(used)} is used"
    _prune(scene)
    assert not scene.libraries(), "what the process used stays after its end"


def _prune(scene: Scene) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **scene.environment}
    command = [sys.executable, "-m", *scene.loader.prune]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def open_to_others(scene: Scene) -> None:
    """a cache folder that other users can write to is refused"""
    scene.answer(1)
    scene.cache.mkdir()
    for mode in (0o777, 0o770, 0o1777):
        scene.cache.chmod(mode)
        assert _refused(scene), "what lies there is loaded"
        assert not scene.files(), "something is written there"
    scene.cache.chmod(0o755)
    scene.expect(1)


def _refused(scene: Scene) -> bool:
    try:
        scene.run()
    except Fails as refused:
        if "PermissionError" in str(refused):
            return True
        raise
    return False
