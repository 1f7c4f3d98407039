"""What a build writes in place of fixed names, read from texts alone."""

from pathlib import Path

import pytest

from toolchain.code import Code, Recipe


def registrations(text: str, target: str = "cpu", **others: str):
    files = {Path(f"/{name}.cpp"): text for name, text in {"one": text, **others}.items()}
    recipe = Recipe("one", tuple(files), (), (), target, False)
    return Code(recipe, {path: text.encode() for path, text in files.items()}, "").registrations


def renamed(text: str, target: str = "cpu") -> str:
    return registrations(text, target).text(Path("/one.cpp"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PYBIND11_MODULE(my_module, m) {}", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"),
        ("TORCH_LIBRARY(ops, m) {}", "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}"),
        ("TORCH_LIBRARY_FRAGMENT(ops, m) {}", "TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) {}"),
        # An implementation for operators that are not defined here keeps its name.
        ("TORCH_LIBRARY_IMPL(aten, CPU, m) {}", "TORCH_LIBRARY_IMPL(aten, CPU, m) {}"),
        ("// TORCH_LIBRARY(ops, m) {}", "// TORCH_LIBRARY(ops, m) {}"),
        # A macro names what it registers where it is used.
        (
            "#define LIBRARY(NAME, m) \\\n  TORCH_LIBRARY(NAME, m)",
            "#define LIBRARY(NAME, m) \\\n  TORCH_LIBRARY(NAME, m)",
        ),
        # One definition of the build's name, and fragments of it.
        (
            "TORCH_LIBRARY(a, m) {} TORCH_LIBRARY(b, m) {} TORCH_LIBRARY_IMPL(b, CUDA, m) {}",
            "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}"
            " TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) {}"
            " TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA, m) {}",
        ),
        # Names in strings: schemas and look-ups, not words of a message.
        (
            'TORCH_LIBRARY(a, m) { m.def("a::f(Tensor x) -> Tensor"); g("a::f"); h("a::f is"); }',
            'TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("f(Tensor x) -> Tensor");'
            ' g(C10_STRINGIZE(TORCH_EXTENSION_NAME) "::f"); h("a::f is"); }',
        ),
    ],
)
def test_fixed_names_become_the_builds(text, expected):
    assert renamed(text, "cuda") == renamed(text, "cpu") == expected


def test_the_fixed_names_are_kept_with_their_operators():
    text = '#define NAME my_ops\nTORCH_LIBRARY(NAME, m) { m.def("f() -> ()"); m.def("g", &g); }'
    other = 'TORCH_LIBRARY_FRAGMENT(others, m) { m.def("h() -> ()"); }'
    assert registrations(text, other=other).aliases == {"my_ops": ["f", "g"], "others": ["h"]}
    assert registrations("PYBIND11_MODULE(my_module, m) {}").aliases == {}


def test_on_the_cpu_an_implementation_gives_way_to_that_for_cuda():
    text = (
        'TORCH_LIBRARY_IMPL(ops, CPU, m) { m.impl("f", &f); m.impl("g", &g); }\n'
        'TORCH_LIBRARY_IMPL(ops, CUDA, m) { m.impl("f", f_cuda); }\n'
        'TORCH_LIBRARY_IMPL(ops, Autograd, m) { m.impl("f", f_autograd); }'
    )
    kept = text.replace('m.impl("f", &f)', '::simulator::set_aside(m, "f", &f)')
    assert renamed(text) == kept
    assert registrations(text).set_aside == ["f"]
    assert renamed(text, "cuda") == text
    assert registrations(text, "cuda").set_aside == []


def test_an_implementation_that_is_not_compiled_sets_none_aside(tmp_path):
    text = (
        'TORCH_LIBRARY(ops, m) { m.def("f() -> ()"); }\n'
        "#if PLAYGROUND_CUDA\nTORCH_LIBRARY_IMPL(ops, CUDA, m) {\n"
        "#else\nTORCH_LIBRARY_IMPL(ops, CPU, m) {\n#endif\n"
        '    m.impl("f", &f);\n}\n'
    )
    assert registrations(text).set_aside == []
    assert registrations(text.replace("PLAYGROUND_CUDA", "1")).set_aside == ["f"]
