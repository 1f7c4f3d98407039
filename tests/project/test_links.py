"""A chapter that is copied to notebooks/mine/ keeps its links."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_copied_chapter_keeps_its_links(tmp_path):
    labapp = pytest.importorskip("jupyterlab.labapp", reason="jupyterlab is not installed")
    folder = tmp_path / "notebooks"
    (folder / "mine").mkdir(parents=True)
    shutil.copy(ROOT / "notebooks/00_start.ipynb", folder)
    for name in ("notebooks", "kernels", "docs"):
        for path in [*(ROOT / name).glob("*.*"), *(ROOT / name).glob("exercises/*")]:
            place = tmp_path / path.relative_to(ROOT)
            place.parent.mkdir(exist_ok=True)
            place.exists() or place.touch()
    server = labapp.LabApp.serverapp_class()
    server.config.merge(
        json.loads((ROOT / "lab/share/config/jupyter_server_config.json").read_text())
    )
    contents = server.contents_manager_class(root_dir=str(tmp_path), config=server.config)
    asyncio.run(contents.copy("notebooks/00_start.ipynb", "notebooks/mine"))
    (copy,) = (folder / "mine").glob("*.ipynb")
    text = copy.read_text()
    links = [link for link in re.findall(r"\]\(([^)\s#:]+)", text) if "." in link]
    assert len(links) > 10
    assert any(link.startswith("../../kernels/") for link in links)
    assert all((copy.parent / link).exists() for link in links)
    before = (folder / "00_start.ipynb").read_text()
    assert "](../kernels/square.cu)" in before
    assert "(https:" not in before or text.count("(https:") == before.count("(https:")
