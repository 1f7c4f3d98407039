"""The book's reference pages: what jitload, lab, the ops and reference.py say of themselves.

book.py has the pages written, a few lines each that name what Sphinx's autodoc puts there; conf.py
has every docstring put into reStructuredText. So docstrings are written for `help()` and Shift-Tab.
"""

import ast
import importlib
import inspect
import re
from types import ModuleType
from unittest import mock

import jitload
import lab
import reference

# modules that lab does not bring along; their docstrings say how they are used
BESIDE_LAB = (
    *("lab.notebook.extension", "lab.notebook.cu_magic", "lab.notebook.check_magic"),
    *("lab.course.exercise", "lab.scaffold", "lab.bench"),
)
NOT_CALLED = {"load_ipython_extension", "unload_ipython_extension"}  # but by `%load_ext lab`


# ---- pages


def pages() -> dict[str, str]:
    """The pages in reStructuredText, by name."""
    return {
        "jitload": loader_page(),
        "lab": lab_page(),
        "ops": ops_page(),
        "reference": truth_page(),
    }


def loader_page() -> str:
    return "\n".join([title("jitload"), docstring_of("jitload"), *entries(jitload)])


def lab_page() -> str:
    parts = [title("lab"), docstring_of("lab"), *entries(lab)]
    for name in BESIDE_LAB:
        parts += [title(name, "-"), docstring_of(name)]
    return "\n".join(parts)


def ops_page() -> str:
    parts = [title("The ops"), docstring_of("kernels")]
    for name in reference.OPS:
        paths = (jitload.op_file(name, ending) for ending in (".cu", ".cpp", ".py"))
        files = (path.relative_to(jitload.KERNELS.parent) for path in paths)
        links = ", ".join(f":download:`{file} <../{file}>`" for file in files)
        parts += [title(name, "-"), docstring_of(f"kernels.{name}"), f"{links}\n"]
        parts += [
            f".. autofunction:: kernels.{name}.{name}\n",
            "The function of reference.py that it is judged by:\n",
        ]
        parts += [f".. literalinclude:: ../reference.py\n   :pyobject: {name}\n"]
    return "\n".join(parts)


def truth_page() -> str:
    parts = [title("reference"), docstring_of("reference")]
    parts += [".. autofunction:: reference.op\n", class_entry("reference.Op")]
    functions = [
        name
        for name, function in vars(reference).items()
        if inspect.isfunction(function) and function.__module__ == "reference" and name != "op"
    ]
    return "\n".join([*parts, *(f".. autofunction:: reference.{name}\n" for name in functions)])


def title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def docstring_of(module: str) -> str:
    return f".. automodule:: {module}\n   :no-index:\n"


def entries(module: ModuleType) -> list[str]:
    """A directive for each class and function that a module offers."""
    found = []
    for name in module.__all__:
        what = getattr(module, name)
        if inspect.isclass(what):
            found.append(class_entry(f"{module.__name__}.{name}"))
        elif callable(what) and name not in NOT_CALLED:
            found.append(f".. autofunction:: {module.__name__}.{name}\n")
    return found


def class_entry(name: str) -> str:
    """The directive for a class or an exception."""
    return f".. autoclass:: {name}\n   :members:\n   :exclude-members: __init__, __new__\n"


def import_ops() -> None:
    """Import every op, and compile none: autodoc then finds them imported."""
    with mock.patch.object(jitload, "load"):
        for name in reference.OPS:
            importlib.import_module(f"kernels.{name}")


# ---- docstrings

SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):")
ENTRY = re.compile(r"([a-z]\w*(?:, [a-z]\w*)*): (.+)")
NAMED = re.compile(r"(\w+(?:, \w+)*): (.+)")
COLUMNS = re.compile(r"\S {2,}\S")


def in_rst(text: str) -> str:
    """A docstring as reStructuredText.

    What is indented, and what stands in columns, is shown as it is; `name: text` is a list of
    names with what they are. All else is prose, with `code` in it, the first block at any rate.
    """
    summary, *blocks = re.split(r"\n(?:[ \t]*\n)+", inspect.cleandoc(text).strip())
    return "\n\n".join([prose(summary), *map(block_in_rst, blocks)])


def block_in_rst(block: str) -> str:
    """One block of a docstring: what stands between two empty lines."""
    lines = block.splitlines()
    flush = [line for line in lines if not line.startswith(" ")]
    if not flush or sum(bool(COLUMNS.search(line)) for line in lines) > 1:
        language = "text" if flush or not is_python(block) else "python"
        return f".. code-block:: {language}\n\n{indented(inspect.cleandoc(block))}"
    if section := SECTION.fullmatch(lines[0]):
        rest = inspect.cleandoc("\n".join(lines[1:]))
        of_names = section[1] not in ("Returns", "Yields")
        return f"**{section[1]}**\n\n{definitions(rest, NAMED) if of_names else prose(rest)}"
    if ENTRY.fullmatch(lines[0]):
        several = all(ENTRY.fullmatch(line) for line in flush)
        return definitions(block if several else " ".join(map(str.strip, lines)), ENTRY)
    if lines[0].startswith("- "):
        points = re.split(r"\n- ", block[2:])
        return "\n".join(f"- {prose(' '.join(point.split()))}" for point in points)
    return prose(block)


def is_python(block: str) -> bool:
    try:
        ast.parse(inspect.cleandoc(block))
    except SyntaxError:
        return False
    return True


def definitions(text: str, entry: re.Pattern[str]) -> str:
    """`name: what it is`, entry by entry; what is no entry continues the one above."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith(" ") and (match := entry.fullmatch(line)):
            found.append([match[1], match[2]])
        elif found:
            found[-1][1] += f" {line.strip()}"
        else:
            return prose(text)
    return "\n\n".join(
        ", ".join(f"``{name}``" for name in names.split(", ")) + f"\n{indented(prose(said))}"
        for names, said in found
    )


def prose(text: str) -> str:
    """Text in which nothing but `code` has a meaning: each mark of reStructuredText is escaped."""
    plain, *rest = re.split(r"`((?=\S)[^`\n]+(?:\n[^`\n]+)?(?<=\S))`", text)
    parts = [escaped(plain)]
    for code, plain in zip(rest[::2], rest[1::2], strict=True):
        # "\\ " is nothing, and lets a literal begin and end beside any character
        parts += [f"\\ ``{' '.join(code.split())}``\\ ", escaped(plain)]
    return "\n".join(line.strip() for line in "".join(parts).splitlines())


def escaped(text: str) -> str:
    marked = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
    return marked.replace("\\\\", "\\ \\\\")  # a line of backslashes alone would be a rule


def indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
