"""Sphinx's settings for the book; notebooks/book.py runs it."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = html_title = "Kernel Playground"
author = "the Kernel Playground authors"
extensions = ["myst_nb"]

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
myst_heading_slug_func = "notebooks.conf.heading_anchor"
nb_execution_mode = "off"  # book.py runs what has to be run
nb_ipywidgets_js = {}  # widgets need a kernel, and their scripts a network
suppress_warnings = ["mystnb.unknown_mime_type"]


# ---- formulas as MathML, which browsers draw by themselves


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))


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
