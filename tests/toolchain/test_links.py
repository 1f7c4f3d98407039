"""Paths in errors: whole or bare in JupyterLab, which links half of any other; else untouched."""

import json
from pathlib import Path

import pytest
from jit_cases import load, write

import jitload
from toolchain import links
from toolchain.sources import ROOT

SQUARE = ROOT / "kernels/square.cu"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Make this process the kernel of a Jupyter server that shows a folder."""
    pytest.importorskip("jupyter_core.paths", reason="jupyter_core is not installed")
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("JPY_PARENT_PID", "4711")

    def start(root: Path) -> None:
        (runtime / "jpserver-4711.json").write_text(json.dumps({"root_dir": str(root)}))

    return start


def test_outside_of_jupyter_a_text_stays_what_it_is(monkeypatch, tmp_path):
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    text = f"kernels/square.cu:12:20: error, full log: {SQUARE}"
    assert links.linked(text) == text
    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))  # a kernel that no server started
    assert links.linked(text) == text


def test_a_file_of_the_project_gets_its_whole_path(server):
    server(ROOT.parent)
    text = (
        "kernel k, launched at kernels/square.cu:61: thread 3; read README.md, n/2 and no/file.cu:3"
    )
    assert links.linked(text) == text.replace("kernels/square.cu", str(SQUARE))
    assert links.linked(links.linked(text)) == links.linked(text)


def test_a_path_that_the_server_does_not_show_is_no_link(server, tmp_path):
    server(tmp_path / "notebooks")
    assert links.linked(f"{SQUARE}:12: no") == "square.cu:12: no"
    assert links.linked("kernels/square.cu:12: no") == "square.cu:12: no"


@pytest.mark.parametrize("place", ["a folder/k.cu", ".hidden/k.cu", "k+.cu"])
def test_a_path_that_jupyterlab_links_in_part_or_hides_is_no_link(place, tmp_path):
    path = write(tmp_path / place, "")
    assert links.link(path, tmp_path) is None


def test_a_root_behind_a_symbolic_link_is_spelled_as_the_server_does(tmp_path):
    path = write(tmp_path / "real/k.cu", "")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert links.link(path, tmp_path / "alias") == str(tmp_path / "alias/k.cu")


def test_an_error_of_the_compiler_links_the_users_file_and_not_the_log(server, in_scratch):
    path = write("scratch/answer.cu", 'extern "C" int answer() { return nothing; }')
    with pytest.raises(jitload.CompileError) as caught:
        load(path)
    server(path.parent)
    (shown,) = caught.value._render_traceback_()
    assert shown.startswith(f"CompileError: {path}:1:34: error:")
    assert shown.endswith("full log: import sys; print(sys.last_value.log.read_text())")
    server(Path("/"))
    assert caught.value._render_traceback_()[0].endswith(f"full log: {caught.value.log}")
    assert str(caught.value).endswith(f"full log: {caught.value.log}")
