"""Processes that are killed, stopped, many at once, or forked."""

import os
import shutil
import signal
import time

from tests.helpers.jit_cases import compilers_in, wait_for
from tests.helpers.scenarios.scene import LOAD, Scene, expect_answer


def killed(scene: Scene) -> str:
    """killed by SIGKILL while it compiles, then loaded again"""
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
    assert left <= 2 * whole, f"leaves {left} files behind"
    return f"at {len(moments)} moments"


def stopped(scene: Scene) -> None:
    """stopped by the notebook's stop button, then loaded again in the same process"""
    scene.endless_answer()
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
    wait_for(lambda: not compilers_in(scene.folder), "the compilers to end", 20)
    scene.answer(3)
    expect_answer(scene.go_on(process), 3)


def crowd(scene: Scene) -> str:
    """8 processes load one cold kernel at once"""
    scene.compiler()
    scene.slow_answer(8)
    processes = [scene.start(LOAD, f"main{i}.py") for i in range(8)]
    answers = {scene.finish(process, 2 * scene.patience)[0] for process in processes}
    assert answers == {"8"}, f"they answer {', '.join(sorted(answers))}; right is 8"
    return scene.expect_builds(1)


def flags(scene: Scene) -> None:
    """two processes with different flags at once"""
    scene.answer("N")
    load = 'print(load("answer.cpp", "-DN={}").answer())'
    processes = [scene.start(load.format(n), f"main{n}.py") for n in (1, 2)]
    answers = [scene.finish(process)[0] for process in processes]
    assert answers == ["1", "2"], f"they answer {' and '.join(answers)}; right is 1 and 2"


def threads(scene: Scene) -> str:
    """threads load at once"""
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
    return scene.expect_builds(1)


def stale_lock(scene: Scene) -> None:
    """a stale lock file, of a process long gone"""
    scene.answer(4)
    scene.expect(4)
    lock = scene.loader.lock(scene.cache)
    for library in scene.libraries():
        library.unlink()
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("4711")
    scene.expect(4)


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
            Answers(), num_workers=2, multiprocessing_context="{}", timeout=100
        )
        print(*[batch.item() for batch in loader])
"""


def forked_workers(scene: Scene) -> None:
    """forked DataLoader workers"""
    _workers(scene, "fork")


def spawned_workers(scene: Scene) -> None:
    """spawned DataLoader workers"""
    _workers(scene, "spawn")


def _workers(scene: Scene, method: str) -> None:
    scene.answer(5)
    scene.expect("5 5 5 5 5", WORKERS.format(method))
