"""The cache: whose folders are used, what becomes of layers below one's own, locks, versions."""

import errno
import json
import os
import shutil
import tempfile
import time
import warnings
from datetime import datetime
from pathlib import Path

import pytest
import torch
from jit_cases import (
    LOAD,
    answer,
    files_in,
    hiding,
    in_process,
    load,
    output_of,
    results_of,
)

import jitload
from jitloader import building, commands, handle, inputs, runtime
from jitloader import cache as caches
from jitloader.cache import Cache
from jitloader.checkup import cache_rows

pytestmark = pytest.mark.usefixtures("in_scratch")


# ---- folders


@pytest.fixture
def ordinary():
    """A folder of an ordinary user, and the rights of one: root may do everything."""
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() != 0:
        yield folder
    else:
        folder.chmod(0o755)
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        yield folder
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_cache_folder_is_made_private(ordinary, monkeypatch):
    own = ordinary / "a" / "b"
    monkeypatch.setenv("JITLOAD_CACHE", str(own))
    assert Cache.here() == Cache(own)
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_read_only_cache_folder_is_read_and_a_temporary_one_written(ordinary, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(ordinary))
    ordinary.chmod(0o555)
    with pytest.warns(RuntimeWarning, match=rf"{ordinary} cannot be used \(it is read-only\)"):
        cache = Cache.here()
    assert cache.shared == (ordinary,)
    assert cache.own.stat().st_mode & 0o777 == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Cache.here() == cache, "said once"
    shutil.rmtree(cache.own)


def test_a_user_without_a_home_has_a_temporary_cache(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("JITLOAD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.warns(RuntimeWarning, match="builds go to"):
        cache = Cache.here()
    assert cache.own.name.startswith("jitload-")
    shutil.rmtree(cache.own)


def test_folders_above_the_cache_folder_are_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "a/b/c"))
    before = os.umask(0)
    try:
        Cache.here()
    finally:
        os.umask(before)
    assert [(tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b", "a/b/c")] == [
        0o755,
        0o755,
        0o700,
    ]


def test_what_a_umask_of_000_makes_in_an_older_folder_is_closed_to_others(own):
    own.mkdir()
    own.chmod(0o755)
    before = os.umask(0)
    try:
        assert load(hiding("masked")).answer() == 3
        with pytest.raises(jitload.CompileError):
            load(answer("oops", "masked_broken"))
    finally:
        os.umask(before)
    open_to_others = {path for path in own.rglob("*") if path.stat().st_mode & 0o022}
    assert not open_to_others
    assert {path.name for path in own.iterdir()} >= {"headers", "compilers", "logs", "in_use"}


@pytest.mark.parametrize("part", ["", "build.json", "library"])
def test_a_build_that_others_could_have_replaced_is_built_again(own, part, capfd):
    """As an earlier release left it, made with a umask of 000."""
    name = f"replaced_{part[:3]}"
    answer(5, name)
    kernel = load(f"{name}.cu")
    folder = kernel.library.parent
    (kernel.library if part == "library" else folder / part).chmod(0o777)
    with pytest.raises(LookupError, match="open to others"):
        kernel.at(0)
    capfd.readouterr()
    handle._kernels.clear()
    assert load(f"{name}.cu").answer() == 5
    assert f"building {name}" in capfd.readouterr().err
    assert not folder.stat().st_mode & 0o022
    assert load(f"{name}.cu").at(0).answer() == 5


@pytest.mark.slow
@pytest.mark.parametrize("set_in", ["the environment", "the process"])
def test_a_relative_cache_folder_stays_where_it_was_named(tmp_path, cache, monkeypatch, set_in):
    """Also for a child process, whose working directory is another."""
    answer(5, "related")
    (tmp_path / "elsewhere").mkdir()
    named = os.pathsep.join(["own", str(cache)])
    code = f"""
        import os, subprocess
        os.environ["JITLOAD_CACHE"] = {named!r}
        jitload.load("related.cu", target="cpu")
        os.chdir("elsewhere")
        kernel = jitload.load("../related.cu", target="cpu")
        child = "import jitload; print(jitload.load('../related.cu', target='cpu').library)"
        print(kernel.library)
        print(subprocess.check_output([sys.executable, "-c", child], text=True))
    """
    if set_in == "the environment":
        monkeypatch.setenv("JITLOAD_CACHE", named)
        code = code.replace('os.environ["JITLOAD_CACHE"] =', "_ =")
        code = code.replace('jitload.load("related.cu", target="cpu")\n', "\n", 1)
    [(out, err)] = results_of([in_process(code)])
    first, second = out.split()
    assert first == second
    assert Path(first).is_relative_to(tmp_path / "own")
    assert err.count("building related") == 1
    assert not (tmp_path / "elsewhere/own").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_folder_that_others_can_write_to_is_told_with_the_remedy(
    tmp_path, monkeypatch, mode, capfd
):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("JITLOAD_CACHE", str(folder))
    with pytest.raises(PermissionError, match=r"open can be written to by other users.*chmod go-w"):
        Cache.here()
    [(_, found, remedy)] = cache_rows()
    assert not found
    assert "written to by other users" in remedy
    if mode == 0o777:
        assert commands.main(["doctor"]) == 1
        assert remedy in capfd.readouterr().out
    folder.chmod(mode & ~0o022)
    assert Cache.here().own == folder


def test_doctor_tells_what_is_wrong_with_a_shared_cache(ordinary, monkeypatch):
    def rows() -> list[str]:
        return [found or f"missing: {remedy}" for _, found, remedy in cache_rows()]

    shared = ordinary / "shared"
    monkeypatch.setenv("JITLOAD_CACHE", f"{ordinary / 'own'}{os.pathsep}{shared}")
    assert rows()[1] == f"missing: {shared} is no folder: correct JITLOAD_CACHE"
    shared.mkdir()
    none = f"missing: {shared} has no build for PyTorch {torch.__version__}"
    assert rows()[1] == f"{none}: it is empty"
    for name, text in {"a_1": '{"torch": "1.0"}', "b_2": "{"}.items():
        (shared / name).mkdir()
        (shared / name / "build.json").write_text(text)
    assert rows()[1] == f"{none}: its 2 builds are for PyTorch 1.0, unknown"
    (shared / "a_1/build.json").write_text(json.dumps({"torch": torch.__version__}))
    assert rows()[1] == f"{shared} (1 of 2 builds are for this PyTorch)"
    shared.chmod(0)
    assert "cannot be read (Permission denied): whoever fills it says `umask 022`" in rows()[1]
    shared.chmod(0o700)


def test_doctor_tells_that_the_own_cache_is_read_only(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", f"/proc/{os.getpid()}/nothing")
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        [(_, found, remedy), *_] = cache_rows()
    assert not found
    assert "cannot be written to, so that every process builds anew" in remedy


def test_a_cache_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match=r"belongs to another user.*name it second"):
        Cache.here()


@pytest.mark.slow
def test_versions_and_notes_of_a_layer_are_found_and_prune_leaves_it(
    tmp_path, cache, monkeypatch, capfd
):
    teacher, student = tmp_path / "teacher", tmp_path / "student"

    def use(*layers: Path) -> None:
        monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join(map(str, [*layers, cache])))

    answer(1, "lesson")
    hiding("macro")
    use(teacher)
    assert output_of(LOAD.format("lesson.cu")) == "1"
    assert output_of(LOAD.format("macro.cu")) == "3"
    before = files_in(teacher)
    teacher.chmod(0o777)  # named on purpose, it may be anybody's
    use(student, teacher)
    capfd.readouterr()
    assert load("lesson.cu").answer() == 1
    assert load("macro.cu").answer() == 3
    assert "building" not in capfd.readouterr().err
    answer(2, "lesson")
    kernel = load("lesson.cu")
    assert kernel.answer() == 2
    assert kernel.library.is_relative_to(student)
    assert [v.folder.parent for v in kernel.builds()] == [student, teacher]
    assert kernel.at(1).answer() == 1
    commands.prune(gigabytes=0, days=0)
    assert files_in(teacher) == before


def test_the_runtime_of_the_environment_is_used_by_an_empty_cache_where_it_fits(
    tmp_path, cache, monkeypatch
):
    environment = tmp_path / "environment"
    for module in (caches, runtime):
        monkeypatch.setattr(module, "ENVIRONMENT", environment)

    def found():
        return building.cached(inputs.Inputs.read(runtime.recipe(), Cache.here()))

    own = found().folder
    environment.mkdir()
    shutil.copytree(own, environment / own.name)
    (environment / "locks").touch()  # nothing can be built there: it is only looked into
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "empty"))
    assert found().folder == environment / own.name
    answer(1, "lesson")
    assert load("lesson.cu").answer() == 1
    assert not list(tmp_path.glob("empty/simulator_*"))
    commands.prune(gigabytes=0, days=0)
    commands.build([], environment=True)  # there is one
    assert found().folder == environment / own.name
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "_simulators_digest", lambda: "of other files")
        assert found() is None
    with monkeypatch.context() as patch:
        patch.setenv("CXX", "c++ -DANOTHER")
        assert found() is None
    with monkeypatch.context() as patch:
        patch.setattr(runtime.simulator, "compile_flags", lambda *_: ["-O3"])
        assert found() is None
    library = next((environment / own.name).glob("*.so"))
    whole = library.read_bytes()
    library.unlink()  # this process has it open
    library.write_bytes(whole[:-1])
    assert found() is None


# ---- locks, and who uses what


def test_a_folder_in_the_place_of_a_lock_stops_nobody(own):
    path = answer(4, "locked")
    name = inputs.Inputs.read(jitload.recipe_of([path], target="cpu"), Cache.here()).name
    (own / "locks" / f"{name}.lock").mkdir(parents=True)
    assert load("locked.cu").answer() == 4


def test_without_locks_nobody_is_noted_and_prune_removes_what_is_there(own, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    load(answer(5, "lockless"))
    assert not list(own.glob("in_use/*"))
    commands.prune(gigabytes=0)
    assert not list(own.glob("lockless_*"))
    assert load("lockless.cu").answer() == 5


def test_prune_forgets_the_processes_that_have_ended(own):
    answer(2, "dead")
    output_of(LOAD.format("dead.cu"))
    assert len(list(own.glob("in_use/*"))) == 1
    commands.prune(gigabytes=0, days=0)
    assert not list(own.glob("dead_*"))
    assert not list(own.glob("in_use/*"))


# ---- clocks


def test_versions_keep_their_order_when_the_clock_goes_back(own, monkeypatch):
    answer(1, "clock")
    load("clock.cu")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    answer(2, "clock")
    kernel = load("clock.cu")
    newest, first = kernel.builds()
    assert newest.when < first.when
    assert newest.digest == kernel.digest
    assert datetime.now() > newest.when
