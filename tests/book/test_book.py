"""The book's pages: what they show of sources, and the site that they become."""

import io
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from browsers import browser, needs_browser
from hypothesis import given, settings
from hypothesis import strategies as st

import jitload
import lab
import reference
from lab.notebook.source import definition
from notebooks import publish
from notebooks.site import api, book

# ---------------------------------------------------------------------------- lab.source


@pytest.fixture
def kernel() -> jitload.Kernel:
    from kernels.square import kernel  # late: importing it may build it

    return kernel


def test_source_is_a_function_with_the_comment_above_it(kernel):
    shown = str(lab.source(kernel, "forward_naive"))
    assert shown.startswith("// ---- naive: one thread per element.")
    assert "template <class T>\n__global__ void forward_naive(" in shown
    assert shown.endswith("}")
    assert "backward" not in shown
    assert shown in kernel.sources[0].read_text()


def test_a_listing_has_the_fence_that_jupyterlab_colours(kernel):
    assert "\n```c++\n" in lab.source(kernel, "forward_naive")._repr_markdown_()
    plain = [page for page in publish.chapters() if "```cpp" in page.read_text()]
    assert not plain


def test_source_takes_several_names_and_python(kernel):
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


def test_source_of_a_decorated_function_isIts_own_file():
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
    _, _, listed = text.rpartition("## The chapters")  # index.md has no such heading
    linked = dict.fromkeys(re.findall(r"\((?:notebooks/)?(\w+\.ipynb)\)", listed))
    assert [*linked] == [path.name for path in publish.chapters()]


CELLS = 60  # of a chapter, about an hour
LINES = 40  # of a cell or a listing, the most that a reader reads


def numbers() -> list[str]:
    return [path.stem.split("_")[0] for path in publish.chapters()]


def chapter(number: str) -> nbformat.NotebookNode:
    (path,) = (it for it in publish.chapters() if it.stem.split("_")[0] == number)
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("number", numbers())
def test_a_chapter_says_its_minutes_and_what_to_read_next(number):
    notebook = chapter(number)
    assert len(notebook.cells) <= CELLS
    kinds = [cell.cell_type for cell in notebook.cells]
    assert ("markdown", "markdown") not in pairwise(kinds), "join them"
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    elsewhere = re.split(r"^## (?:Elsewhere|Where to read next)$", text, flags=re.M)[1]
    assert len(re.findall(r"\]\(", elsewhere.partition("\n## ")[0])) >= 3
    assert not re.search(r"prediction (holds|held)", text), "the table has a column for that"
    assert re.search(r"\d+ minutes", notebook.cells[0].source)


@pytest.mark.parametrize("number", numbers())
def test_a_chapter_shows_no_more_lines_than_a_reader_reads(number):
    for cell in chapter(number).cells:
        shown = [output.get("data", {}) for output in cell.get("outputs", [])]
        listed = [data["text/plain"] for data in shown if "lab.source(" in cell.source and data]
        for code in [cell.source] * (cell.cell_type == "code") + listed:
            assert len(code.splitlines()) <= LINES, f"cell {cell.id} shows more than a reader reads"


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
    tests = "\n".join(path.read_text() for path in (publish.ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert not [name for name in named if f"def {name}(" not in tests]
    rows = [line for line in text.splitlines() if re.match(r"\| (?!you see)[^-]", line)]
    assert not [row for row in rows if "`test_" not in row and ".ipynb)" not in row]


@pytest.fixture(scope="module")
def site(made_once):
    """The site with the committed outputs; chapters without any are run in test_chapters."""
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "execute", lambda *_: None)
        return made_once("html", book.build)


@pytest.mark.slow
def test_site_builds_without_a_warning(site):
    front = (site / "index.html").read_text()
    for path in (*publish.chapters(), *publish.pages()):
        assert f'href="notebooks/{path.stem}.html"' in front
        assert (site / "notebooks" / f"{path.stem}.html").is_file()
    assert "softmax" in (site / "searchindex.js").read_text()
    remote = re.findall(r'<(?:script|link)[^>]*(?:src|href)="https?://[^"]*"', front)
    assert not remote, "the pages need a network"
    layer_norm = (site / "notebooks/07_layer_norm_backward.html").read_text()
    assert "<math" in layer_norm


@pytest.mark.slow
def test_a_page_that_links_nowhere_stops_the_site(tmp_path, monkeypatch, capfd):
    pytest.importorskip("sphinx", reason="sphinx is not installed")

    def write_sources(source: Path) -> None:
        source.mkdir()
        (source / "index.md").write_text("# When not\n\n[nowhere](nowhere.md)\n")

    monkeypatch.setattr(book, "write_sources", write_sources)
    with pytest.raises(SystemExit, match="book: Sphinx warned 1 times"):
        book.build(tmp_path / "html")
    assert re.search(r"index\.md:\d+: WARNING: .*nowhere\.md", capfd.readouterr().err)
    assert not (tmp_path / "html").exists()


@pytest.mark.slow
def test_site_describes_every_function(site):
    """From the docstrings, without compiling a kernel."""
    text = "\n".join((site / "api" / f"{name}.html").read_text() for name in api.pages())
    described = set(re.findall(r'<dt class="sig[^>]* id="([\w.]+)"', text))
    assert {f"kernels.{name}.{name}" for name in reference.OPS} <= described
    assert {f"reference.{name}" for name in (*reference.OPS, "op", "Op", "philox")} <= described
    assert {f"jitload.{name}" for name in jitload.__all__} - described == {"jitload.listeners"}
    assert {f"lab.{name}" for name in lab.__all__} - described == {
        f"lab.{name}" for name in api.NOT_CALLED
    }
    assert {"jitload.Kernel.reload", "lab.Report.plot_lanes"} <= described
    assert "%%cu scale -DTHREADS=256" in text  # lab.notebook.cu_magic's


WIDTH = 1300  # of a window
LOOK = """() => {
    const light = color => {
        const [red, green, blue, opaque = 1] = color.match(/[\\d.]+/g).map(Number);
        return opaque && 0.21 * red + 0.72 * green + 0.07 * blue > 150;
    };
    const all = selector => [...document.querySelectorAll(selector)];
    return {
        bright: all("article *:not(img)").filter(
            element => light(getComputedStyle(element).backgroundColor)).map(
            element => element.outerHTML.slice(0, 80)),
        scrolled: all("div.highlight pre").filter(
            code => code.scrollWidth > code.clientWidth + 1).map(code => code.innerText),
        width: document.documentElement.scrollWidth,
    };
}"""
IS_IN = "scheme => document.documentElement.dataset.theme === scheme"


@pytest.fixture
def browse():
    """Opens a page of a site, from its file."""
    with browser() as started:
        page = started.new_page(viewport={"width": WIDTH, "height": 900})

        def opened(path, query=""):
            page.goto(f"file://{path}{query}")
            return page

        yield opened


@pytest.mark.browser
@pytest.mark.slow
@needs_browser
def test_site_shows_all_code_and_no_bright_box_in_the_dark(site, browse):
    a_readers = {f"{path.stem}.html" for path in publish.chapters() if publish.edited(path)}
    paths = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(paths) > 30
    for path in paths:
        if path.name in a_readers:
            continue
        page = browse(path)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(IS_IN, arg=scheme)
            look = page.evaluate(LOOK)
            assert not look["scrolled"], path
            assert look["width"] <= WIDTH, path
            assert not look["bright"] or scheme == "light", path


GO_TO = """([text, thread, run]) => {
    const { data, go } = window.trace;
    for (let group = 0; group < data.gRound.length; group++) {
        const [file, line] = data.places[data.gPlace[group]];
        if (data.gWarp[group] === thread >> 5 && (data.gLanes[group] >>> (thread & 31)) & 1
            && data.gDepth[group] < 1 << 15 && data.files[file].lines[line - 1].includes(text)
            && --run === 0) return go(data.gRound[group], thread);
    }
    throw new Error(`thread ${thread} does not run ${text} so often`);
}"""
# Of each trace: the chapter, the kernel, which one of that name, the text of a line, a thread, for
# the how-manieth time it runs the line, and a variable with its value after that.
TRACES = [
    ("primer", "two_reads", 0, "const float apart", 5, 1, "apart", "20"),
    ("primer", "sum_pairs<false>", 0, "const float right", 31, 1, "right", "0"),
    ("primer", "sum_pairs<true>", 0, "const float right", 31, 1, "right", "16.5"),
    ("01_speed_of_light", "three_ways", 0, "neighbours[8 * k + t]", 5, 3, "k", "2"),
    ("03_reductions", "sum_tree", 0, "if (t < half)", 0, 8, "half", "1"),
    ("03_reductions", "sum_shuffle", 0, "if (threadIdx.x == 0) atomicAdd", 0, 1, "sum", "16777222"),
    ("05_softmax", "softmax", 0, "sum += expf(x[c] - most);", 0, 3, "sum", "2.367879"),
    ("05_softmax", "softmax_online", 0, "    sum += expf(x[c] - most);", 0, 3, "most", "-1.5"),
    ("08_rms_norm", "add_norm", 0, "s[c] = sum[i];", 3, 2, "sum", "[3, 3]"),
    ("11b_clusters", "softmax_push", 0, "cluster_wait();  // every", 36, 1, "rank", "1"),
    ("11b_clusters", "softmax_pull<false>", 0, "mine = part;", 0, 1, "i", "0"),
    ("14_tiles", "product_tiles", 0, "sum += tile_x", 9, 16, "sum", "64"),
    ("14_tiles", "product_tiles", 1, "sum += tile_x", 0, 13, "sum", "14"),
    ("15_tensor_cores", "product_direct", 0, "y[(down", 13, 1, "sums", "[50, 51, 178, 179]"),
    ("15_tensor_cores", "product_direct", 1, "y[(down", 0, 1, "sums", "[32, 46, 16430, 48]"),
    ("16_hopper", "one_stage_kernel", 0, "wait(&shared.full, step % 2)", 0, 2, "step", "1"),
    ("16_hopper", "specialized_kernel", 0, "wait(&shared.empty[i]", 256, 5, "step", "4"),
    ("16_hopper", "multicast_kernel", 0, "expect_bytes(&full[i]", 256, 2, "step", "1"),
    ("17_attention", "attention_online<false>", 0, "total *= factor", 16, 2, "factor", "0.1353353"),
    ("17_attention", "attention_online<true>", 0, "y[row", 16, 1, "largest", "3"),
    ("20_blackwell", "product_tile", 0, "full.arrive_expect_tx", 0, 2, "step", "1"),
]


@pytest.mark.browser
@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("chapter", dict.fromkeys(it[0] for it in TRACES))
def test_traces_step_in_a_published_page(site, browse, chapter, published):
    published(publish.NOTEBOOKS / f"{chapter}.ipynb")
    page = browse(site / f"notebooks/{chapter}.html")
    for _, kernel, which, line, thread, run, variable, value in (
        it for it in TRACES if it[0] == chapter
    ):
        frame = page.locator(f"iframe[title='trace of {kernel}']").nth(which)
        frame.scroll_into_view_if_needed()
        inner, trace = frame.element_handle().content_frame(), frame.content_frame
        inner.wait_for_function("window.trace")
        assert trace.locator("#number").input_value() == "0"
        trace.locator("#forward").click()
        trace.locator("#forward").click()
        assert trace.locator("#number").input_value() == "2"
        trace.locator("#back").click()
        assert trace.locator("#number").input_value() == "1"
        inner.evaluate(GO_TO, [line, thread, run])
        row = trace.locator("#locals tr", has_text=re.compile(f"^{variable}(?![a-z])"))
        shown = row.locator("td.value").first.inner_text()
        assert shown.replace("changed", "").strip() == value, (kernel, line)


@pytest.mark.browser
@pytest.mark.slow
@needs_browser
def test_search_from_a_file_shows_what_stands_around_the_words(site, browse):
    page = browse(site / "search.html", query="?q=shuffle")
    page.get_by_text("Search finished").wait_for()
    results = page.locator("ul.search li").filter(has_not=page.locator("span:text('(Python')"))
    assert results.count() > 3
    extracts = page.locator("ul.search li p.context")
    extracts.nth(results.count() - 1).wait_for()  # each appears when its page has been read
    assert extracts.count() == results.count()
    assert all("shuffle" in text.lower() for text in extracts.all_inner_texts())
    page = browse(site / "search.html", query="?q=compare_builds")
    page.locator("ul.search a[href='api/lab.html#lab.compare_builds']").wait_for()


DOCSTRING = """Move x_ to *y* | or not.

    kernel.move(x)   # at once

It `copies` where it must: a`b`c, see `one
two`.

x, y: tensors
    of one type.
args: *others*.

name    what it is
other   another

- one, `a`
  goes on
- two

Args:
    size: in bytes; see the
        manual.

Raises:
    ValueError: if not.
"""


def test_docstrings_are_put_into_restructured_text():
    from docutils.core import publish_parts  # late: it takes a second

    html = publish_parts(api.in_rst(DOCSTRING).replace("code-block", "code"), writer="html5")[
        "body"
    ]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))
    assert "Move x_ to *y* | or not. kernel.move(x) # at once It copies where it must:" in text
    assert "abc, see one two." in text
    assert re.search(r"<dt>.*>x<.*>y<.*</dt>\s*<dd>\s*<p>tensors of one type.</p>", html)
    assert "name    what it is\nother   another" in re.sub(r"<[^>]+>", "", html)
    assert html.count("<li>") == 2
    assert re.search(r"<dt>.*>size<.*</dt>\s*<dd>\s*<p>in bytes; see the manual.</p>", html)
    assert re.search(r"<dt>.*>ValueError<.*</dt>", html)


@given(st.text("ab1 \n\n`*_|\\:.-=<>()[]{}#+~^\"'", max_size=120))
@settings(max_examples=300, deadline=None)
def test_no_docstring_upsets_restructured_text(text):
    said = io.StringIO()
    written = api.in_rst(text).replace("code-block", "code")
    from docutils.core import publish_doctree  # late: it takes a second

    publish_doctree(written, settings_overrides={"warning_stream": said, "report_level": 1})
    assert not said.getvalue(), written


def test_site_replaces_nothing_but_a_site(tmp_path, monkeypatch, capsys):
    (tmp_path / "thesis.tex").touch()
    monkeypatch.setattr("sys.argv", ["book.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        book.main()
    assert "holds something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
