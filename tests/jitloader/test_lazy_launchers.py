"""After an edit what is called is compiled first, and the rest in the background."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from jit_cases import ENDLESS, compilers_in, in_process, load, output_of, wait_for

import jitload
import lab
from jitloader import background, building, commands, kept_objects, lazy_launchers
from jitloader.arguments import KERNELS, op_file
from jitloader.builds import Build
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import idle, kernel_fatbins, parts
from toolchain.errors import CompileError

pytestmark = pytest.mark.skipif(not parts.SUPPORTED, reason="here every build is whole")

IDLE = 300  # seconds for what has only what other tests leave of the cores
HEADER = """
#define FOR_EACH_TYPE(M) M(double) M(float)
"""
SOURCE = """
#include <cstdint>
#include "types.h"

constexpr int kValue = VALUE;

template <class T>
__device__ __noinline__ T third(T x) {
    return x / 3;
}

template <class T>
__global__ void fill(T* x, int64_t n) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = third(T(kValue));
}

template <class T>
void filled(T* x, int64_t n) {
    fill<<<1, 32>>>(x, n);
}

int value() { return kValue; }

#define INSTANTIATE(T) \\
    template decltype(filled<T>) filled<T>;
FOR_EACH_TYPE(INSTANTIATE)
"""
BINDING = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;
int value();
template <class T>
void filled(T* x, int64_t n);

int64_t fill(Tensor x) {
    if (x.scalar_type() == torch::headeronly::ScalarType::Double) {
        filled(static_cast<double*>(x.mutable_data_ptr()), x.numel());
    } else {
        filled(static_cast<float*>(x.mutable_data_ptr()), x.numel());
    }
    return x.numel();
}
int64_t value_of(Tensor) { return value(); }

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("fill(Tensor(a!) x) -> int");
    m.def("value_of(Tensor x) -> int");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("fill", TORCH_BOX(&fill));
    m.impl("value_of", TORCH_BOX(&value_of));
}
"""


class Scene:
    """A kernel of two types with a binding, in a folder and a cache of its own."""

    def __init__(self, folder: Path):
        self.cache = folder / "cache"
        self.source, self.binding = folder / "filled.cu", folder / "filled.cpp"
        (folder / "types.h").write_text(HEADER)
        self.binding.write_text(BINDING)
        self.edit()

    def edit(self, replaced: str = "", by: str = "") -> int:
        """Give the source another value than ever before, and change what else is to change."""
        value = random.randrange(1 << 30)
        self.source.write_text(SOURCE.replace(replaced, by).replace("VALUE", str(value)))
        return value

    def load(self) -> jitload.Kernel:
        return load(self.source, self.binding)

    def parts(self) -> list[Build]:
        """Of the newest builds, the libraries with launchers alone."""
        builds = filter(None, map(Build.read, self.cache.glob("filled_*")))
        return [build for build in builds if build.binding == "part"]


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    """A scene in which the kernel has been compiled once."""
    scene = Scene(tmp_path_factory.mktemp("parts"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", os.pathsep.join([str(scene.cache), str(cache)]))
        jitload.ensure(scene.source, scene.binding, target="cpu")
    return scene


@pytest.fixture
def scene(built, cache, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(built.cache), str(cache)]))
    monkeypatch.setattr("jitloader.handle._kernels", {})
    yield built
    background.stop()


def filled(kernel: jitload.Kernel, kind: torch.dtype) -> torch.Tensor:
    x = torch.zeros(100, dtype=kind)
    assert kernel.fill(x) == 100
    return x


def right(value: int, kind: torch.dtype) -> torch.Tensor:
    return (torch.tensor(value, dtype=kind) / 3).expand(100)


def test_an_edit_compiles_what_is_called(scene):
    value, before = scene.edit(), len(scene.parts())
    kernel = scene.load()
    background.stop()
    assert len(kernel.build.launchers) == 5, "three launchers, a kernel for each type"
    for kind in (torch.float, torch.double):
        assert torch.equal(filled(kernel, kind), right(value, kind))
    assert kernel.value_of(torch.zeros(1)) == value
    known = len(scene.parts())
    assert known > before
    value = scene.edit()
    kernel.reload()
    first = Build.read(kernel.build.folder.with_name(kernel.build.first))
    assert len(first.exports["held"]) == 5, "what the build before was asked for comes first"
    assert torch.equal(filled(kernel, torch.double), right(value, torch.double))
    assert kernel.value_of(torch.zeros(1)) == value
    assert len(scene.parts()) == known + 1


def test_an_edit_of_a_kernel_leaves_its_launchers(scene):
    """They are compiled by themselves in the background; and each build has them for itself."""
    value = scene.edit()
    kernel = scene.load()
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))
    background.stop()
    _complete_launchers(kernel)
    before, older = len(scene.parts()), kernel.at()
    text = scene.source.read_text()
    scene.source.write_text(text.replace("third(T(kValue));", "third(T(kValue + 3));"))
    kernel.reload()
    assert len(kernel.build.first.split()) == 2
    assert len(scene.parts()) == before + 1
    for _ in range(2):
        assert torch.equal(filled(kernel, torch.float), right(value + 3, torch.float))
        assert torch.equal(filled(older, torch.float), right(value, torch.float))
    scene.source.write_text(text.replace("fill<<<1, 32>>>", "fill<<<2, 32>>>"))
    kernel.reload()
    assert len(kernel.build.first.split()) == 1, "a launcher has changed"
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


def test_what_is_first_called_is_known_in_the_background_at_once(scene, monkeypatch):
    """Also of the first edit in a cache, when nothing was called before that was loaded."""
    made: list[tuple | None] = []
    monkeypatch.setattr(
        "jitloader.lazy_launchers.completed", lambda inputs, _: made.append(inputs.recipe.part)
    )
    shutil.rmtree(scene.cache / "called", ignore_errors=True)
    value = scene.edit()
    kernel = scene.load()
    assert background.wait(300)
    assert made == [None], "the whole build, and no launchers by themselves"
    for kind in (torch.float, torch.double):
        for _ in range(2):  # what is called again changes nothing
            assert torch.equal(filled(kernel, kind), right(value, kind))
        assert background.wait(300)
    one, whole, two, again = made[1:]
    assert (len(one.held), len(two.held)) == (1, 2)
    assert whole is again is None
    background.stop()
    assert kernel.value_of(torch.zeros(1)) == value
    assert len(made) == 5, "what was stopped does not begin again"


def test_a_check_compiles_what_it_calls(scene):
    """Of what is instrumented, too; and lines and kernels are told of parts as of the whole."""
    shutil.rmtree(scene.cache / "called", ignore_errors=True)
    scene.edit("i < n; i", "i <= n; i")
    kernel = scene.load()
    background.stop()
    x = torch.zeros(100, dtype=torch.double)
    for _ in range(2):
        report = lab.check(kernel.fill, x)
        (finding,) = report.findings.to_dict("records")
        assert finding["kind"] == "out of bounds"
        line = 1 + SOURCE[: SOURCE.index("x[i] =")].count("\n")
        assert (Path(finding["file"]).name, finding["line"]) == ("filled.cu", line)
        assert list(report.launches["kernel"]) == ["fill"]
    told: list[Build] = []
    kernel.instrumented().tell_libraries(told.append)
    checks, *parts_of_it = told
    assert checks.launchers.keys() == kernel.build.launchers.keys()
    binding, launchers = (f"NAME={checks.name} .* -o {n}.o" for n in (1, 0))
    assert re.search(launchers, checks.log())
    assert not re.search(binding, checks.log()), "a binding is not instrumented"
    held = [name for part in parts_of_it for name in part.exports["held"]]
    assert len(held) == 2, "the launcher of a type, and its kernel"
    assert background.wait(0), "nobody needs the whole"


def test_c_functions_in_parts_keep_their_parameters(tmp_path, cache, monkeypatch):
    """Signatures are as of the whole, checks name the parameters, and an error is raised."""
    caches = tmp_path / "cache", cache
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join(map(str, caches)))
    source, binding = tmp_path / "halved.cu", tmp_path / "halved.cpp"
    kernel = "__global__ void halve(float* y) { y[threadIdx.x] /= 2; }\n"
    source.write_text(kernel + "void halves(float* y, int n) { halve<<<1, n>>>(y); }\n")
    declared = 'void halves(float* y, int n);\nextern "C" void run'
    binding.write_text(declared + "(float* y, int n) { halves(y, n); }\n")
    whole = load(source, binding).run.__signature__
    source.write_text(source.read_text().replace("/= 2", "*= 0.5f"))
    opened = load(source, binding)
    assert opened.build.launchers, "in parts"
    assert opened.run.__signature__ == whole == opened.instrumented().run.__signature__
    y = torch.ones(8)
    opened.run(y, 8)
    assert y.eq(0.5).all()
    (finding,) = lab.check(opened.run, y, 9).findings.to_dict("records")
    assert finding["kind"] == "out of bounds"
    assert re.search(r"\by\b", finding["message"]), "named as in C"

    source.write_text(source.read_text().replace("*= 0.5f", "*= half"))
    with pytest.raises(CompileError, match="half"):
        load(source, binding).run(y, 8)
    background.stop()


def _complete_launchers(kernel: jitload.Kernel) -> None:
    """As the background does, but not when all others are idle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle, "COMMAND", [])
        completed = building.completed
        patch.setattr(
            "jitloader.lazy_launchers.completed", lambda i, end: i.recipe.part and completed(i, end)
        )
        reading, writing = os.pipe()
        lazy_launchers._completed(Inputs.read(kernel.recipe, Cache.here()), reading)
        os.close(writing)
        os.close(reading)


@pytest.mark.parametrize(
    ("replaced", "by"),
    [
        ("fill<<<1, 32>>>(x, n)", "fill<<<1, 32>>>(x, int(n))"),  # the launch calls its name
        ("template <class T>\n__global__", "template <class T, int = 0>\n__global__"),
    ],
)
def test_a_kernel_that_cannot_be_apart_any_more_is_compiled_with_its_launcher(scene, replaced, by):
    """And a person is told of one build, which does not fail."""
    value = scene.edit(replaced, by)
    told: list[jitload.BuildEvent] = []
    jitload.listen(told.append)
    try:
        kernel = scene.load()
        background.stop()
        assert torch.equal(filled(kernel, torch.double), right(value, torch.double))
    finally:
        jitload.unlisten(told.append)
    assert {event.state for event in told} == {"building", "done"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replaced", "by"),
    [
        ("third(T(kValue))", "T(kValue) / 3"),
        ("int64_t n) {\n    for", "int64_t n, int = 0) {\n    for"),
    ],
)
def test_an_edit_may_take_out_what_launchers_called(scene, replaced, by):
    """A function of the device, or a kernel, which has other parameters then."""
    value = scene.edit(replaced, by)
    kernel = scene.load()
    background.stop()
    for kind in (torch.float, torch.double):
        assert torch.equal(filled(kernel, kind), right(value, kind))
    assert kernel.build.launchers


@pytest.mark.slow
def test_the_whole_build_follows_and_is_what_another_process_opens(scene):
    value = scene.edit()
    kernel = scene.load()
    assert kernel.build.launchers
    assert background.wait(300)
    whole = Build.read(kernel.build.folder)
    assert whole.is_whole()
    assert not whole.launchers
    assert (whole.order, whole.when) == (kernel.build.order, kernel.build.when)
    assert output_of(
        f"""
        import torch
        jitload.listen(print)
        kernel = jitload.load({str(scene.source)!r}, {str(scene.binding)!r}, target="cpu")
        print(kernel.value_of(torch.zeros(1)))
        """
    ).split() == [str(value)]
    assert torch.equal(filled(kernel, torch.double), right(value, torch.double))


@pytest.mark.slow
def test_what_is_asked_for_after_the_whole_build_is_only_linked(scene):
    scene.edit()
    kernel = scene.load()
    kernel.value_of(torch.zeros(1))
    value = scene.edit()
    kernel.reload()
    assert background.wait(300)
    filled(kernel, torch.float)
    part = max(scene.parts(), key=lambda build: build.when)
    assert len(part.exports["held"]) == 1
    assert f"NAME={part.name} " in part.log()
    assert not re.search(rf"NAME={part.name} .*filled\.cu", part.log())
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


def test_an_error_in_what_was_called_before_is_raised_at_once(scene):
    scene.edit()
    kernel = scene.load()
    filled(kernel, torch.float)
    scene.edit("T(kValue)", "T(oops)")
    with pytest.raises(CompileError, match="oops") as caught:
        kernel.reload()
    assert caught.value.path == scene.source
    with pytest.raises(CompileError, match="oops"):
        filled(kernel, torch.float)
    value = scene.edit()
    kernel.reload()
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


@pytest.mark.slow
def test_an_error_in_what_was_not_called_is_told_at_the_next_call(scene):
    scene.edit()
    kernel = scene.load()
    filled(kernel, torch.float)
    value = scene.edit("T(kValue)", "T(kValue + 0 * sizeof(char[sizeof(T) == 4 ? 1 : -1]))")
    kernel.reload()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(filled(kernel, torch.float), right(value, torch.float))
    with pytest.raises(CompileError) as caught:
        filled(kernel, torch.double)
    line = 1 + SOURCE[: SOURCE.index("T(kValue)")].count("\n")
    assert (caught.value.path, caught.value.line) == (scene.source, line)
    assert background.wait(300)
    with pytest.warns(RuntimeWarning, match=rf"filled\.cu:{line}"):
        assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


@pytest.mark.slow
def test_an_edit_of_the_binding_or_a_variable_of_the_source_needs_the_whole(scene):
    scene.edit("int value()", "int changes = 0;\nint value()")
    kernel = scene.load()
    assert background.wait(300)
    scene.edit("int value()", "int changes = 0;\nint value()")
    kernel.reload()
    assert not kernel.build.launchers, "its parts would not share the variable"
    scene.edit()
    kernel.reload()
    assert not kernel.build.launchers
    try:
        value = scene.edit()
        scene.binding.write_text(BINDING.replace("x.numel();\n}", "x.numel() + 0;\n}"))
        kernel.reload()
        assert not kernel.build.launchers
        assert kernel.value_of(torch.zeros(1)) == value
    finally:
        scene.binding.write_text(BINDING)
        jitload.ensure(scene.source, scene.binding, target="cpu")


SESSION = """
    import torch
    kernel = jitload.load({source!r}, {binding!r}, target="cpu")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def session(scene: Scene) -> subprocess.Popen:
    code = SESSION.format(source=str(scene.source), binding=str(scene.binding))
    return in_process(code, stdin=subprocess.PIPE)


def edit_slowly(scene: Scene) -> int:
    value = scene.edit()
    text = scene.source.read_text().replace(
        "template <class T>\n__g", f"{ENDLESS}template <class T>\n__g"
    )
    scene.source.write_text(text.replace("T(kValue)", "T(kValue + 0 * Slow<T, 400>::value)"))
    return value


@pytest.mark.parametrize(
    "how",
    ["killed", *(pytest.param(how, marks=pytest.mark.slow) for how in ("terminated", "over"))],
)
def test_the_background_ends_with_its_process(scene, how):
    value = edit_slowly(scene)
    process = session(scene)
    assert process.stdout.readline() == "ready\n"
    wait_for(lambda: compilers_in(scene.cache), "the background", IDLE)
    if how == "over":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    process.wait(60)
    wait_for(lambda: not compilers_in(scene.cache), "its end", 60)
    if how == "over":
        assert not list(scene.cache.glob("building/*"))
    kernel = scene.load()
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


@pytest.mark.slow
def test_an_edit_ends_the_background_of_the_one_before(scene):
    edit_slowly(scene)
    kernel = scene.load()
    wait_for(lambda: compilers_in(scene.cache), "the background", IDLE)
    begun = {*compilers_in(scene.cache)}
    value = scene.edit()
    kernel.reload()
    wait_for(lambda: not begun & {*compilers_in(scene.cache)}, "its end", 60)
    assert background.wait(300), "what is compiled now has only what other tests leave"
    assert not Build.read(kernel.build.folder).launchers
    assert torch.equal(filled(kernel, torch.float), right(value, torch.float))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has an idle processor to give")
def test_the_background_takes_nothing_from_a_call(scene):
    """Its compilers are idle ones; beside a call that uses every core they come to a standstill."""
    edit_slowly(scene)
    scene.load()
    wait_for(lambda: compilers_of(scene), "the background", IDLE)
    assert {os.sched_getscheduler(process) for process in compilers_of(scene)} == {os.SCHED_IDLE}
    x = torch.rand(256, 256)
    end = time.monotonic() + 1

    def call() -> None:
        while time.monotonic() < end:
            x @ x

    before = ticks(scene)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in range(os.cpu_count()):
            threads.submit(call)
    assert ticks(scene) - before <= os.cpu_count() * os.sysconf("SC_CLK_TCK") / 10


def compilers_of(scene: Scene) -> list[int]:
    """The processes that compile for it, whatever is part of what."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(scene.cache) in (process / "cmdline").read_text():
                found.append(int(process.name))
    return found


def ticks(scene: Scene) -> int:
    """What those that compile now have used of processors."""
    used = 0
    for process in compilers_of(scene):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            used += int(words[11]) + int(words[12])
    return used


def test_what_is_idle_runs_last_and_ends_with_its_input():
    shown = (
        "import os, time; print(os.sched_getscheduler(0), os.nice(0), flush=True); time.sleep(9999)"
    )
    process = subprocess.Popen(
        [*idle.COMMAND, sys.executable, "-c", shown],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().split() == [str(os.SCHED_IDLE), "19"]
    process.stdin.close()
    assert process.wait(IDLE) != 0


@pytest.mark.slow
def test_after_random_edits_every_function_is_that_of_its_files(scene):
    """Some are broken, some are returned to; and the background comes as far as it does.

    RANDOM_EDITS in the environment says how many.
    """
    drawn = random.Random(28)
    kernel, texts, constant = None, {}, 0
    for _ in range(int(os.environ.get("RANDOM_EDITS", "40"))):
        if texts and drawn.random() < 0.2:
            value = drawn.choice(list(texts))
            scene.source.write_text(texts[value])
        elif texts and drawn.random() < 0.5:  # of the kernel alone
            more = drawn.randrange(1 << 20)
            value, text = constant + more, texts[constant]
            scene.source.write_text(text.replace("T(kValue)", f"T(kValue + {more})"))
        else:
            value = constant = scene.edit()
            texts[value] = scene.source.read_text()
        kernel = scene.load()
        for kind in drawn.sample([torch.float, torch.double], drawn.randrange(3)):
            assert torch.equal(filled(kernel, kind), right(value, kind))
        if drawn.random() < 0.3:
            background.stop()
            _complete_launchers(kernel)
        if drawn.random() < 0.2:
            text = scene.source.read_text()
            scene.source.write_text(text.replace("T(kValue", "T(oops"))
            with contextlib.suppress(
                CompileError
            ):  # where nothing was called, it may be a later one
                kernel.reload()
                filled(kernel, torch.float)
                raise AssertionError("a broken source was run")


@pytest.mark.slow
def test_killed_at_random_moments_then_loaded_again(scene):
    drawn = random.Random(29)
    for _ in range(6):
        value = scene.edit()
        process = session(scene)
        time.sleep(1.5 + 2 * drawn.random())  # it imports torch first
        process.kill()
        process.communicate()
    kernel = scene.load()
    assert torch.equal(filled(kernel, torch.double), right(value, torch.double))
    assert background.wait(300)
    assert not Build.read(kernel.build.folder).launchers


def test_every_op_can_be_compiled_in_parts(users_cache):
    """What hinders one, a variable say, is as well in a header of the simulator's."""
    ops = [each for each in commands.recipes([], "cpu") if each.sources[0].is_relative_to(KERNELS)]
    assert len(ops) > 20
    for recipe in ops:
        building.ensure(recipe)
        assert kept_objects.deferred(next(building.readings(recipe))), recipe.name
    for recipe in commands.recipes([], "cuda"):
        if recipe.sources[0].is_relative_to(KERNELS):
            assert kernel_fatbins.on_demand(next(building.readings(recipe)), ()), recipe.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["square", "layer_norm"])
def test_parts_of_an_op_compute_the_same_bits_as_the_whole(name, scene, tmp_path):
    shutil.copytree(KERNELS, tmp_path / "kernels")
    source = tmp_path / op_file(name, ".cu").relative_to(KERNELS.parent)
    options = {"target": "cpu", "include": [tmp_path / "kernels/include"]}
    kernel = jitload.load(source, source.with_suffix(".cpp"), **options)
    before = list(results(name, kernel))
    source.write_text(f"{source.read_text()}\nconstexpr int kEdited = 1;\n")
    kernel.reload()
    assert kernel.build.launchers
    for one, other in zip(before, results(name, kernel), strict=True):
        assert torch.equal(one, other)


def results(name: str, kernel: jitload.Kernel) -> Iterator[torch.Tensor]:
    """Of every version and type, forward and backward."""
    generator = torch.Generator().manual_seed(1)
    for kind in (torch.double, torch.float, torch.half, torch.bfloat16):
        x, grad = (torch.randn(8, 515, generator=generator).to(kind) for _ in range(2))
        for version in range(2 if name == "square" else 5):
            if name == "layer_norm":
                y, mean, rstd = kernel.forward(x, x[0], x[1], 1e-5, version, None, None)
                yield from (y, mean, rstd)
                yield from kernel.backward(grad, x, x[0], mean, rstd, version)
            else:
                y = kernel.forward(x, version)
                yield from (y, kernel.backward(grad, x if name == "square" else y, version))
