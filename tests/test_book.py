"""The book's pages: what they show of sources, and the site that they become."""

import re

import pytest

import lab
import reference
from kernels.square import kernel
from lab.source import definition
from notebooks import publish

# ---------------------------------------------------------------------------- lab.source


def test_source_is_a_function_with_the_comment_above_it():
    shown = str(lab.source(kernel, "forward_naive"))
    assert shown.startswith("// ---- naive: one thread per element.")
    assert "template <class T>\n__global__ void forward_naive(" in shown
    assert shown.endswith("}")
    assert "backward" not in shown
    assert shown in kernel.sources[0].read_text()


def test_source_takes_several_names_and_python():
    shown = str(lab.source(kernel, "square", "forward_vector"))
    assert shown.count("__global__") == 1
    assert shown.startswith("template <class A>\n__device__ A square(A x) {")
    assert "return x * x" in str(lab.source(reference.square))
    assert "```python" in lab.source(reference.square)._repr_markdown_()
    assert "```python" in lab.source(kernel.sources[0].with_suffix(".py"))._repr_markdown_()


def test_source_shows_the_constants_of_a_section():
    text = "// ---- one: an idea.\n// Flaw: none.\n\nconstexpr int kOne = 1;\n\nvoid f() {\n}\n"
    assert definition(text, "f", "here") == text.rstrip()
    assert definition(f"{text}\nvoid g() {{\n}}\n", "g", "here") == "void g() {\n}"


def test_source_of_a_decorated_function_is_its_own_file():
    from notebooks.training import train

    shown = lab.source(train.joined)
    assert shown.where == "notebooks/training/train.py"
    assert "def joined()" in shown.text


def test_source_finds_the_definition_not_the_call():
    wanted = "// twice {\nint f(int x) {\n    return 2;\n}"
    text = f"int f(int x);\n\nint g() {{\n    return f(1);\n}}\n\n{wanted}\n"
    assert definition(text, "f", "here") == wanted
    bounded = "__launch_bounds__(1024,\n                  2) void k(int n) {\n}"
    assert definition(f"int g() {{\n    k(1);\n}}\n\n{bounded}\n", "k", "here") == bounded
    aligned = "struct alignas(4 * sizeof(int)) S {\n    int a[4];\n};"
    for text in ("struct S {\n    int a;\n};", "class S {\n  public:\n    S() {}\n};", aligned):
        assert definition(f"class S;\n\n{text}\n", "S", "here") == text
    with pytest.raises(ValueError, match="here defines no function or struct 'h'"):
        definition(text, "h", "here")


# ---------------------------------------------------------------------------- lab.plot_access


def test_picture_counts_sectors():
    figure = lab.plot_access(
        {"apart": lambda t, s: [8 * t], "together": lambda t, s: [t]}, threads=4, steps=1
    )
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "apart: 4 sectors, 12% of their bytes used",
        "together: 1 sector, 50% of their bytes used",
    ]


# ---------------------------------------------------------------------------- pages


@pytest.mark.parametrize("page", ["README.md", "notebooks/index.md"])
def test_page_lists_all_chapters(page):
    text = (publish.ROOT / page).read_text()
    linked = re.findall(r"^\|.*?\((?:notebooks/)?(\w+\.ipynb)\)", text, re.MULTILINE)
    assert linked == [path.name for path in publish.chapters()]


def test_glossary_has_what_the_pages_link_to():
    """The anchor of a heading is its text with - for spaces: in JupyterLab, and by conf.py."""
    text = (publish.NOTEBOOKS / "glossary.md").read_text()
    entries = [line.strip("`") for line in re.findall(r"^## (.*)$", text, re.MULTILINE)]
    assert entries == sorted(entries, key=lambda entry: entry.strip("_").lower())
    anchors = {entry.replace(" ", "-") for entry in entries}
    linked = set(re.findall(r"\]\(#([^)]*)\)", text))
    pages = [*publish.NOTEBOOKS.glob("*.md"), *publish.chapters(), *publish.ROOT.glob("*.md")]
    for page in [*pages, *(publish.ROOT / "docs").glob("*.md")]:
        linked |= set(re.findall(r"glossary\.md#([^)]*)\)", page.read_text()))
    assert linked
    assert not linked - anchors


def test_primer_links_each_entry_that_names_it():
    text = (publish.NOTEBOOKS / "glossary.md").read_text()
    primer = (publish.NOTEBOOKS / "primer.ipynb").read_text()
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    named = [entry for entry in entries if "First used in the [primer]" in entry]
    assert len(named) > 30
    for entry in named:
        anchor = entry.splitlines()[0].strip("`").replace(" ", "-")
        assert f"glossary.md#{anchor})" in primer


def test_troubleshooting_names_tests_and_pages_that_exist():
    text = (publish.NOTEBOOKS / "troubleshooting.md").read_text()
    tests = "\n".join(path.read_text() for path in (publish.ROOT / "tests").glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert not [name for name in named if f"def {name}(" not in tests]
    rows = [line for line in text.splitlines() if re.match(r"\| (?!you see)[^-]", line)]
    assert not [row for row in rows if "`test_" not in row and ".ipynb)" not in row]


def test_site_builds_without_a_warning(tmp_path, monkeypatch):
    """With the committed outputs; chapters without any are not run here but in test_chapters."""
    book = pytest.importorskip("notebooks.book", reason="sphinx is not installed")

    monkeypatch.setattr(publish, "execute", lambda *_: None)
    book.build(tmp_path)
    front = (tmp_path / "index.html").read_text()
    for path in publish.chapters():
        assert f'href="notebooks/{path.stem}.html"' in front
        assert (tmp_path / "notebooks" / f"{path.stem}.html").is_file()
    assert "softmax" in (tmp_path / "searchindex.js").read_text()
    remote = re.findall(r'<(?:script|link)[^>]*(?:src|href)="https?://[^"]*"', front)
    assert not remote, "the pages need a network"
    layer_norm = (tmp_path / "notebooks/07_layer_norm_backward.html").read_text()
    assert "<math" in layer_norm


def test_site_replaces_nothing_but_a_site(tmp_path, monkeypatch, capsys):
    book = pytest.importorskip("notebooks.book", reason="sphinx is not installed")

    (tmp_path / "thesis.tex").touch()
    monkeypatch.setattr("sys.argv", ["book.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        book.main()
    assert "holds something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
