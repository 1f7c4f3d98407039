"""Sphinx's settings for the book; notebooks/site/book.py runs it."""

import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from notebooks.site import api

project = html_title = "Kernel Playground"
author = "the Kernel Playground authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]

html_theme = "sphinx_book_theme"
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navbar_start": [],
    "navbar_persistent": [],  # the search is in the sidebar
}
html_static_path = ["static"]
html_css_files = ["book.css"]
html_show_sourcelink = html_show_copyright = html_copy_source = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
myst_heading_slug_func = "notebooks.site.conf.heading_anchor"
nb_execution_mode = "off"  # book.py runs what has to be run
nb_ipywidgets_js = {}  # widgets need a kernel, and their scripts a network
smartquotes = False  # "rows cols" in a docstring is code
suppress_warnings = ["mystnb.unknown_mime_type"]

autodoc_class_signature = "separated"  # what their docstrings describe are attributes
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


# ---- formulas as MathML, which browsers draw by themselves


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    app.connect("html-page-context", keep_text)
    app.connect("autodoc-process-docstring", rewrite)
    api.import_ops()


def write_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def write_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


# ---- anchors of headings, as JupyterLab makes them: a link works there and on the site


def heading_anchor(title: str) -> str:
    return title.replace(" ", "-")


# ---- docstrings


def rewrite(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list) -> None:
    lines[:] = [*api.in_rst("\n".join(lines)).splitlines(), ""]


# ---- search from a file: a browser fetches no page for another page's sake then

texts: dict[str, str] = {}  # of the pages, with the ids of their parts, by name


def keep_text(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Keep the text of each page; the search page, which comes last, gets them all."""
    if page == "search":
        written = f"const PAGE_TEXTS = {json.dumps(texts)};\n"
        Path(app.outdir, "_static", "page_texts.js").write_text(written)
        app.add_js_file("page_texts.js")
        app.add_js_file("search_from_file.js")
    elif context.get("body"):
        texts[page] = text_with_ids(context["body"])


def text_with_ids(body: str) -> str:
    """Of a page's HTML the text, and the elements that search results point at."""
    reader = TextWithIds()
    reader.feed(body)
    text = re.sub(r"\s+", " ", "".join(reader.parts))
    return f'<div role="main">{text}</div>'


class TextWithIds(HTMLParser):
    KEPT = ("section", "dt")
    LEFT_OUT = ("script", "style", "svg", "math")

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.left_out = 0  # how deep in elements that are left out

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.left_out += tag in self.LEFT_OUT
        if tag in self.KEPT:
            self.parts.append(f'<{tag} id="{dict(attributes).get("id", "")}">')

    def handle_endtag(self, tag: str) -> None:
        self.left_out -= tag in self.LEFT_OUT
        if tag in self.KEPT:
            self.parts.append(f"</{tag}>")

    def handle_data(self, text: str) -> None:
        if not self.left_out and text != "#":  # the mark of a link to a heading
            self.parts.append(html.escape(text))
