"""Failures of the machine, files that vanish, and damaged files of the cache."""

import errno
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from jit_cases import answer, files_in, hiding, load, write

import jitload
from jitloader import building, commands, handle, opening
from toolchain import machine
from toolchain.errors import first_error

pytestmark = pytest.mark.usefixtures("in_scratch")


# ---- failures of the machine


@pytest.mark.parametrize("method", ["write_text", "write_bytes", "replace"])
def test_a_full_disk_is_named_and_leaves_nothing_half_done(own, monkeypatch, method):
    """Simulated, at each kind of step that follows the compilers."""
    real = getattr(Path, method)

    def full(path, *arguments):
        if "result" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *arguments)

    answer(1, "filling")
    with monkeypatch.context() as patch:
        patch.setattr(Path, method, full)
        with pytest.raises(OSError, match=r"disk of the cache folder is full.*jitload prune"):
            load("filling.cu")
    assert not list(own.glob("filling_*"))
    assert not list(own.glob("building/*"))
    assert load("filling.cu").answer() == 1


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "ran out of memory"),
        ("/tmp/x.s: fatal error: closing: No space left on device", "JITLOAD_CACHE"),
        ("ninja: fatal: posix_spawn: Resource temporarily unavailable", "--pids-limit"),
    ],
    ids=["killed", "full disk", "processes"],
)
def test_a_failure_of_the_machine_is_told_and_tried_again(own, monkeypatch, said, hint):
    """It is not remembered as the source's."""
    kernel = load(answer(1, "machine"))
    answer(2, "machine")
    with monkeypatch.context() as patch:

        def failed(inputs, name, work, log, *_):
            raise first_error(said, set(inputs.files), log)

        patch.setattr("toolchain.compile.compile_library", failed)
        with pytest.raises(jitload.CompileError, match=hint):
            kernel.reload()
    assert not kernel.is_current()
    assert kernel.reload()
    assert kernel.answer() == 2


@pytest.mark.parametrize(
    ("does", "patience", "says"),
    [("exec sleep 60", 1, "timed out after 1 seconds"), ("exit 3", 60, "exit status 3")],
)
def test_a_compiler_that_does_not_answer_is_named(own, monkeypatch, does, patience, says):
    compiler = write("my-c++", f"#!/bin/sh\n{does}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(machine, "PATIENCE", patience)
    with pytest.raises(jitload.MissingTool, match=rf"my-c\+\+ does not work: .*{says}"):
        load(answer(1, "unanswered"))


def test_where_processes_are_limited_one_compiler_runs_at_a_time(monkeypatch):
    compiler = write(
        "alone-c++",
        f"""#!/bin/sh
        case " $* " in *" -c "*) ;; *) exec c++ "$@" ;; esac
        mkdir {Path("alone").absolute()} 2>/dev/null || {{
            echo "c++: cannot execute 'cc1plus': vfork: Resource temporarily unavailable"
            exit 1
        }}
        sleep 0.5
        c++ "$@"; status=$?
        rmdir {Path("alone").absolute()}
        exit $status
        """,
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    write("beside.cpp", "int beside() { return 1; }")
    assert load(answer(1, "limited"), "beside.cpp").answer() == 1


def test_processes_that_cannot_be_started_are_told_of_with_the_limit(monkeypatch):
    def forked(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    kernel = load(answer(1, "unforked"))
    answer(2, "unforked")
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", forked)
        with pytest.raises(jitload.CompileError, match=r"may not start more processes.*ulimit -u"):
            kernel.reload()
    assert kernel.reload()
    assert kernel.answer() == 2


# ---- what was missing


def test_a_library_that_has_been_installed_since_is_found():
    write("wanted.cu", 'extern "C" int foo();\nextern "C" int answer() { return foo(); }')
    folder = Path("installed").absolute()
    folder.mkdir(exist_ok=True)
    flags = [f"-L{folder}", "-lfoo", f"-Wl,-rpath,{folder}"]
    with pytest.raises(jitload.CompileError, match=r"cannot find -lfoo(?s:.*)install that library"):
        load("wanted.cu", flags=flags)

    source = write("installed/foo.cpp", 'extern "C" int foo() { return 3; }')
    library = folder / "libfoo.so"
    subprocess.run(["c++", "-shared", "-fPIC", source, "-o", library], check=True)
    assert load("wanted.cu", flags=flags).answer() == 3


@pytest.mark.parametrize("flag", ["-I", "-isystem", "-idirafter"])
def test_a_header_that_has_been_installed_since_is_found(flag):
    folder = Path(f"headers{flag}").absolute()
    write(f"header{flag}.cu", '#include <late.h>\nextern "C" int answer() { return LATE; }')
    with pytest.raises(jitload.CompileError, match=r"late\.h"):
        load(f"header{flag}.cu", flags=[flag, str(folder)])
    write(f"{folder}/late.h", "#define LATE 4")
    assert load(f"header{flag}.cu", flags=[flag, str(folder)]).answer() == 4


# ---- what vanishes


def test_a_removed_header_is_missed_and_its_return_compiles_nothing(own, capfd):
    header = write("removed.h", "#define N 1")
    write("headed.cu", '#include "removed.h"\nextern "C" int answer() { return N; }')
    kernel = load("headed.cu")
    header.unlink()
    for attempt in (kernel.reload, kernel.answer):
        with pytest.raises(jitload.CompileError, match=r"headed.cu:1:.*removed.h"):
            attempt()
    capfd.readouterr()
    write("removed.h", "#define N 1")
    kernel.reload()
    assert kernel.answer() == 1
    assert "building" not in capfd.readouterr().err


def test_a_build_that_vanishes_before_it_is_opened_is_built_again(own, monkeypatch):
    path = answer(3, "vanishing")
    load(path)
    functions_of, vanish = opening.functions_of, [True]

    def pruned_meanwhile(version, check):
        if vanish:
            vanish.pop()
            shutil.rmtree(version.folder)
        return functions_of(version, check)

    monkeypatch.setattr(opening, "functions_of", pruned_meanwhile)
    monkeypatch.setattr("jitloader.handle._kernels", {})
    monkeypatch.setattr("jitloader.opening._opened", {})
    assert load(path).answer() == 3
    assert not vanish


# ---- damaged files


DAMAGES = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbled": lambda data: bytes(byte ^ 0xA5 for byte in data),
    "foreign": lambda data: b'{"digest": "beef"}',
    "a folder": None,
}


def damage(path: Path, how: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("a file where a folder was")
    elif DAMAGES[how] is None:
        path.unlink()
        write(str(path / "inside"), "")
    else:
        data = DAMAGES[how](path.read_bytes())
        path.unlink()  # a library that this process has open must not change under it
        path.write_bytes(data)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_of_the_cache_are_made_again(own, tmp_path, monkeypatch, how, capfd):
    """Every file in turn, with each folder replaced by a file: all goes on, and is then as before.

    Two builds, an error, a header that only a note tells of: every kind of file is there but the
    stub libraries for PyTorch's libraries, which the shared cache has.
    """
    name = f"damaged_{how[-3:]}"

    def load_it() -> jitload.Kernel:
        for memory in (handle._kernels, building._failures):
            memory.clear()
        monkeypatch.setattr("jitloader.opening._opened", {})  # for this test alone: ops stay open
        return load(hiding(name))

    def broken() -> jitload.CompileError:
        building._failures.clear()
        hiding(name, "oops")
        with pytest.raises(jitload.CompileError, match="oops") as caught:
            load(f"{name}.cu")
        return caught.value

    load(hiding(name, 2))
    load_it()
    broken()
    whole = files_in(own)
    kinds = {path.split("/")[0].split("_")[0] for path in whole}
    folders = {"headers", "compilers", "logs", "in", "locks", "building"}
    assert kinds == {"damaged", *folders}
    paths = [own / path for path in sorted(whole)]
    for path in [path for path in paths if how == "emptied" or path.is_file()]:
        if not path.exists():
            continue  # a lock, or this process's line in in_use/, which was swept
        damage(path, how)
        kernel = load_it()
        assert kernel.answer() == 3, path
        assert "damaged" not in str(kernel.builds()), "a table, whatever is gone"
        if path.is_relative_to(own / "logs"):
            assert "oops" in broken().log.read_text(), path
            load_it()
    capfd.readouterr()
    load_it()
    assert "building" not in capfd.readouterr().err, "nothing is left to be mended"
    assert commands.prune(gigabytes=0, days=0) == 0


@pytest.mark.parametrize("key", ["digest", "binding", "exports", "recipe", "sources", "built"])
def test_a_manifest_without_a_key_is_written_again(own, key):
    name = f"lacking_{key}"
    answer(5, name)
    manifest = load(f"{name}.cu").library.with_name("build.json")
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({k: v for k, v in facts.items() if k != key}))
    handle._kernels.clear()
    kernel = load(f"{name}.cu")
    assert kernel.answer() == 5
    assert len(kernel.builds()) == 1
    assert json.loads(manifest.read_text())["digest"] == facts["digest"]
