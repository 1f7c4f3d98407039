"""The versions of an op have one order: in Python, in its binding and in its kernels."""

import ast
import re
from pathlib import Path

import pytest

import jitload

KERNELS = Path(jitload.KERNELS)
OTHER_NAMES = {"one_warp": "warp"}  # kWarp is the width of a warp
MODULES = {
    path.stem: path
    for path in sorted(KERNELS.rglob("*.py"))
    if re.search(r"^VERSIONS = ", path.read_text(), re.M)
}


def in_python(name: str) -> tuple[str, ...]:
    """VERSIONS, without an import, which would build the op."""
    for line in ast.parse(MODULES[name].read_text()).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "VERSIONS":
            return ast.literal_eval(line.value)
    raise AssertionError(f"{MODULES[name]} has no VERSIONS")


def text_of(path: Path, seen: set[Path]) -> str:
    """A source and the headers of kernels/ that it includes."""
    if path in seen:
        return ""
    seen.add(path)
    text = path.read_text()
    for header in re.findall(r'^#include "([^"]+)"', text, re.M):
        for folder in (path.parent, KERNELS / "include"):
            if (folder / header).is_file():
                text += text_of(folder / header, seen)
                break
    return text


def lists(text: str) -> list[tuple[str, ...]]:
    """The names of each enum of versions, as Python has them: kFewRows is few_rows."""
    found = re.findall(
        r"(?:enum Version : int64_t|struct \w*Version \{\s*enum : int64_t) \{([^}]*)\}", text
    )
    lists = []
    for names in found:
        words = [name for name in re.findall(r"\bk(\w+)", names) if name != "Count"]
        words = [re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower() for word in words]
        lists.append(tuple(OTHER_NAMES.get(word, word) for word in words))
    return lists


def told(name: str) -> list[tuple[str, ...]]:
    path = MODULES[name]
    kernels = [it for it in (path.with_suffix(".cu"), path.with_suffix(".cpp")) if it.is_file()]
    return lists("\n".join(text_of(it, set()) for it in kernels))


def test_every_op_is_looked_at():
    assert len(MODULES) >= 17


@pytest.mark.parametrize("name", MODULES)
def test_the_kernels_number_the_versions_as_python_does(name):
    assert in_python(name) in told(name)


@pytest.mark.parametrize("name", MODULES)
def test_the_binding_takes_as_many_versions_as_python_has(name):
    path = MODULES[name].with_suffix(".cpp")
    counts = set(re.findall(r"\bkVersions = (\d+);", text_of(path, set())))
    assert counts <= {str(len(in_python(name)))}
    assert counts or "::kCount" in path.read_text()


def test_a_name_of_two_words_is_read():
    text = "enum Version : int64_t { kNaive, kFewRows, kWgmma };"
    assert lists(text) == [("naive", "few_rows", "wgmma")]
