"""What an edit leaves alone is not compiled again, and what runs is the same as if it were."""

import os
import random
import re
from collections.abc import Iterable

import pytest
import torch
from jit_cases import files_in, load, write

import jitload
from jitloader import commands
from toolchain import machine
from toolchain.objects import Object

pytestmark = pytest.mark.usefixtures("in_scratch")

NAME = "kernel_0123456789abcdef"


def number(name: str, value: object, includes: Iterable[str] = ()) -> str:
    """A source whose function of this name returns `value`."""
    lines = [f'#include "{header}"' for header in includes]
    lines.append(f'extern "C" int {name}() {{ return {value}; }}')
    return write(f"{name}.cpp", "\n".join(lines))


def compiled(kernel: jitload.Kernel) -> set[int]:
    """The positions of the sources that were compiled for the newest build."""
    commands = re.findall(rf"^.*={kernel.build.name} .* -o (\d+)\.", kernel.build.log(), re.M)
    return set(map(int, commands))


def test_an_edit_of_one_source_compiles_that_one(own):
    sources = number("first", 1), number("second", 2)
    kernel = load(*sources)
    assert compiled(kernel) == {0, 1}
    number("first", 3)
    kernel.reload()
    assert compiled(kernel) == {0}
    assert (kernel.first(), kernel.second()) == (3, 2)
    number("second", 4)
    kernel.reload()
    assert compiled(kernel) == {1}
    assert (kernel.first(), kernel.second()) == (3, 4)
    assert (kernel.at(2).first(), kernel.at(2).second()) == (1, 2)


def test_the_first_edit_takes_over_what_a_shared_cache_has(tmp_path, cache, monkeypatch):
    sources = number("first", 1), number("second", 2)
    for layers in (
        [tmp_path / "teacher", cache],
        [tmp_path / "pupil", tmp_path / "teacher", cache],
    ):
        monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join(map(str, layers)))
        monkeypatch.setattr("jitloader.handle._kernels", {})
        kernel = load(*sources)
    assert kernel.library.is_relative_to(tmp_path / "teacher")
    before = files_in(tmp_path / "teacher")
    for value in (3, 4):  # the second finds one object here and one there
        number("first", value)
        kernel.reload()
        assert compiled(kernel) == {0}
        assert kernel.library.is_relative_to(tmp_path / "pupil")
        assert (kernel.first(), kernel.second()) == (value, 2)
    assert files_in(tmp_path / "teacher") == before


def test_an_edit_of_a_header_compiles_the_sources_that_read_it(own):
    write("of_both.h", "#define BOTH 1")
    write("of_first.h", '#include "of_both.h"\n#define FIRST 10')
    sources = (
        number("first", "FIRST + BOTH", ["of_first.h"]),
        number("second", "BOTH", ["of_both.h"]),
    )
    kernel = load(*sources)
    write("of_first.h", '#include "of_both.h"\n#define FIRST 20')
    kernel.reload()
    assert compiled(kernel) == {0}
    assert (kernel.first(), kernel.second()) == (21, 1)
    write("of_both.h", "#define BOTH 2")
    kernel.reload()
    assert compiled(kernel) == {0, 1}
    assert (kernel.first(), kernel.second()) == (22, 2)


def test_a_header_that_shadows_one_compiles_what_reads_it_now(own):
    write("behind/h.h", "#define N 1")
    sources = number("first", "N", ["h.h"]), number("second", 2)
    kernel = load(*sources, include=["before", "behind"])
    write("before/h.h", "#define N 3")
    kernel.reload()
    assert compiled(kernel) == {0}
    assert kernel.first() == 3


def test_a_header_that_a_macro_names_counts_for_every_source(own):
    """Only the compiler knows who reads it."""
    write("hidden.h", "#define HIDDEN 1")
    by_macro = '#define NAMED "hidden.h"\n#include NAMED\n'
    second = write("second.cpp", f'{by_macro}extern "C" int second() {{ return HIDDEN; }}')
    kernel = load(number("first", 1), second)
    write("hidden.h", "#define HIDDEN 2")
    kernel.reload()
    assert compiled(kernel) == {0, 1}
    assert kernel.second() == 2
    number("first", 3)
    kernel.reload()
    assert compiled(kernel) == {0}
    assert (kernel.first(), kernel.second()) == (3, 2)


def test_an_edit_of_the_kernel_leaves_its_binding_and_gives_it_the_builds_name(own):
    write("bound.cu", "int value() { return 1; }")
    binding = write(
        "bound.cpp",
        """
        #include <torch/csrc/stable/library.h>
        #include <torch/csrc/stable/tensor.h>
        int value();
        using torch::stable::Tensor;
        int64_t answer(Tensor) { return value(); }
        STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("answer(Tensor x) -> int"); }
        STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
            m.impl("answer", TORCH_BOX(&answer));
        }
        """,
    )
    kernel = load("bound.cu", binding)
    x = torch.ones(1)
    for value in (2, 3):
        write("bound.cu", f"int value() {{ return {value}; }}")
        kernel.reload()
        assert compiled(kernel) == {0}
        assert kernel.answer(x) == value
        assert getattr(torch.ops, kernel.build.name).answer(x) == value
    assert kernel.at(2).answer(x) == 1


@pytest.mark.slow
def test_the_log_keeps_what_was_said_of_a_source_that_is_left(own):
    warned = write("warned.cpp", "#warning about this\n")
    kernel = load(number("first", 1), warned)
    number("first", 2)
    kernel.reload()
    assert compiled(kernel) == {0}
    said = [build.log().count("about this") for build in kernel.builds()]
    assert said[0] == said[1] > 0


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_for_a_gpu_too_the_other_sources_are_left(own, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    kernel = write(
        "gpu.cu", '__global__ void k(int* x) { *x = 1; }\nextern "C" int n() { return 1; }'
    )
    sources = kernel, number("other", "__LINE__")
    first = jitload.ensure(*sources, target="cuda")
    kernel.write_text(kernel.read_text().replace("*x = 1", "*x = 2"))
    second = jitload.ensure(*sources, target="cuda")
    of_other = [line for line in first.log().splitlines() if line.endswith(" -o 1.o ")]
    assert len(of_other) == 1
    assert of_other[0].partition(" ")[2] in second.log(), "as it was compiled for the first build"


@pytest.mark.slow
def test_other_flags_compile_all(own):
    sources = number("first", "N"), number("second", "N")
    assert load(*sources, flags=["-DN=1"]).second() == 1
    kernel = load(*sources, flags=["-DN=2"])
    assert compiled(kernel) == {0, 1}
    assert (kernel.first(), kernel.second()) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "gone", "its note garbled"])
def test_a_damaged_object_is_compiled_again(own, damage):
    sources = number("first", 1), number("second", 2)
    kernel = load(*sources)
    [folder] = own.glob("objects/first_*.1")
    if damage == "truncated":
        (folder / "object").write_bytes((folder / "object").read_bytes()[:100])
    elif damage == "gone":
        (folder / "object").unlink()
    else:
        (folder / "build.json").write_text("{}")
    number("first", 3)
    kernel.reload()
    assert compiled(kernel) == {0, 1}
    number("first", 4)
    kernel.reload()
    assert compiled(kernel) == {0}, "the damaged one is replaced"
    assert (kernel.first(), kernel.second()) == (4, 2)


@pytest.mark.slow
def test_prune_removes_objects_and_a_kernel_of_one_source_has_none(own):
    load(number("alone", 1))
    assert not (own / "objects").exists()
    kernel = load(number("first", 1), number("second", 2))
    assert len(list(own.glob("objects/*"))) == 2
    commands.prune(gigabytes=0, days=0)
    assert not list(own.glob("objects/*"))
    number("first", 3)
    kernel.reload()
    assert (kernel.first(), kernel.second()) == (3, 2)


@pytest.mark.parametrize(
    ("data", "can_be"),
    [
        (f"PyInit_{NAME}\0{NAME}\0", True),
        ("no name at all", True),
        (f"{NAME}\0 mov $kernel_0 mov $12345678 mov $9abcdef", False),
        (f"{NAME}\0 .gnu.lto_.symtab", False),
    ],
    ids=["whole", "none", "in pieces", "for the linker to compile"],
)
def test_an_object_with_its_builds_name_in_another_form_is_not_renamed(data, can_be):
    found = Object(key="", build=NAME, read=[], called=[], said="", data=data.encode())
    assert found.can_be_renamed() == can_be


def test_a_name_is_exchanged_for_one_of_the_same_length():
    data = f"a{NAME}b{NAME}".encode()
    found = Object(key="", build=NAME, read=[], called=[], said="", data=data)
    other = "kernel_fedcba9876543210"
    assert found.renamed(other) == f"a{other}b{other}".encode()


@pytest.mark.slow
@pytest.mark.longest
def test_after_100_random_edits_every_function_is_that_of_its_files(own):
    """Of sources and headers, some of which come and go."""
    drawn = random.Random(28)
    names = ["first", "second", "third"]
    include = '#if __has_include("{0}.h")\n#include "{0}.h"\n#else\n#define V 0\n#endif\n'
    values = dict.fromkeys(names, (0, None))  # of a source, and of the header beside it

    def put(name: str) -> None:
        source, header = values[name]
        body = f'extern "C" int {name}() {{ return 1000 * V + {source}; }}'
        write(f"{name}.cpp", include.format(name) + body)
        if header is None:
            write(f"{name}.h", "").unlink()
        else:
            write(f"{name}.h", f"#define V {header}")

    for name in names:
        put(name)
    kernel = load(*(f"{name}.cpp" for name in names))
    for step in range(100):
        for name in drawn.sample(names, drawn.choice([1, 1, 1, 2])):
            source, header = values[name]
            if drawn.random() < 0.5:
                values[name] = drawn.randrange(1000), header
            else:
                values[name] = source, drawn.choice([None, drawn.randrange(1000)])
            put(name)
        kernel.reload()
        for name, (source, header) in values.items():
            assert getattr(kernel, name)() == 1000 * (header or 0) + source, (step, name)
