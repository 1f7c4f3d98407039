"""Links of a chapter that a reader has copied to notebooks/mine/.

A chapter's links are relative to notebooks/. Jupyter's server calls `before_saving`, also for a
copy made on its page; it repairs each link that leads nowhere from the copy.
"""

import re
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"(\]\()([^)\s:#]+)([^)]*\))")


def led_from(folder: Path, text: str) -> str:
    """Markdown in `folder`, whose broken links are redirected to the folder above it."""

    def link(found: re.Match) -> str:
        target = unquote(found[2])
        is_above = not (folder / target).exists() and (folder.parent / target).exists()
        return f"{found[1]}../{found[2]}{found[3]}" if is_above else found[0]

    return _LINK.sub(link, text)


def before_saving(model: dict, path: str, contents_manager: object, **_: object) -> None:
    """The server's pre_save_hook."""
    place = Path(getattr(contents_manager, "root_dir", "."), path.strip("/"))
    if model.get("type") != "notebook" or place.parent.parts[-2:] != ("notebooks", "mine"):
        return
    for cell in model["content"]["cells"]:
        if cell["cell_type"] == "markdown":
            source = cell["source"]
            text = source if isinstance(source, str) else "".join(source)
            cell["source"] = led_from(place.parent, text)
