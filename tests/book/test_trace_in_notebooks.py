"""A trace among a notebook's outputs: in JupyterLab, and in a frame like VS Code's."""

import pytest
from browsers import browser, needs_browser

import jitload
import lab

pytestmark = [pytest.mark.browser, needs_browser]
SUM = jitload.KERNELS.parent / "notebooks/ladders/03_sum.cu"

# The policy of VS Code's webview for the outputs of notebooks.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' https: http: data:; font-src 'self' https:;"
    " connect-src https:; child-src https: data:;"
)
# And as its renderer of text/html: the markup is put in, and scripts are made anew.
RENDER = """markup => {
    const output = document.getElementById("output");
    output.innerHTML = markup;
    for (const dead of output.querySelectorAll("script")) {
        const live = document.createElement("script");
        for (const at of dead.attributes) live.setAttribute(at.name, at.value);
        live.textContent = dead.textContent;
        dead.replaceWith(live);
    }
}"""


@pytest.fixture(scope="module")
def trace() -> lab.Trace:
    import torch

    kernel = jitload.load(SUM, target="cpu", include=[SUM.parent])
    return lab.trace(kernel.tree, torch.arange(8.0), torch.zeros(1), 8)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_trace_steps_in_a_webview_like_vs_codes(tmp_path, trace, theme):
    place = tmp_path / "webview.html"
    place.write_text(
        f'<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<body class="vscode-{theme}"><div id="output"></div></body>'
    )
    outside = tmp_path / "editor.html"  # the webview itself is a frame without the editor's origin
    outside.write_text(
        '<iframe sandbox="allow-scripts allow-same-origin allow-forms allow-downloads"'
        f' style="width: 1000px; height: 850px" src="{place.as_uri()}"></iframe>'
    )
    with browser() as started:
        page = started.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(outside.as_uri())
        webview = page.frame(url=place.as_uri())
        webview.evaluate(RENDER, trace._repr_html_())
        inner = page.frame_locator("iframe").frame_locator("#output iframe")
        inner.locator("#forward").click()
        inner.locator("#forward").click()
        (frame,) = webview.child_frames
        assert frame.evaluate("trace.state.step") == 2
        assert frame.evaluate("dark()") == (theme == "dark")
        assert f"line {trace.line_of(0, 2)} of" in inner.locator("#locals").inner_text()
        page.screenshot(path=tmp_path / f"webview_{theme}.png")
        assert not errors
