"""Git's clean filter for chapters that a reader has run or opened: git_filter.py PATH

Set-up has git call it for the notebooks of .gitattributes. It drops what Jupyter adds when it saves
a notebook. If the notebook was run, it puts the committed outputs back into cells whose code is
unchanged, so that git sees no change from a run alone. The file on disk stays as it is.

Notebooks that publish.py wrote have no execution counts and pass unchanged, as do other files.
git status takes a file of another size as changed and calls no filter. Therefore Jupyter's server
calls `after_saving`, which has git note the new size if the filter finds no change.

It needs only the standard library, because git may call it dozens of times.
"""

import json
import subprocess
import sys
from pathlib import Path

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
OUTPUTS = "outputs_of"  # see publish.py


def cleaned(text: str, kept: str) -> str:
    """The text of a notebook as git should keep it. kept: the text that git has, or ""."""
    notebook = json.loads(text)
    cells = json.loads(kept)["cells"] if kept else []
    known = {_key(cell): cell.get("outputs", []) for cell in cells}
    made = {key: value for key, value in notebook["metadata"].items() if key == OUTPUTS}
    notebook["metadata"] = METADATA | made
    was_run = any(cell.get("execution_count") for cell in notebook["cells"])
    for cell in notebook["cells"]:
        tags = cell["metadata"].get("tags")
        cell["metadata"] = {"tags": tags} if tags else {}
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            if was_run:
                cell["outputs"] = known.get(_key(cell), [])
    written = {"indent": 1, "sort_keys": True, "separators": (",", ": "), "ensure_ascii": False}
    return json.dumps(notebook, **written) + "\n"


def _key(cell: dict) -> tuple[object, str]:
    return cell.get("id"), "".join(cell["source"])


def committed(path: str, folder: Path | None = None) -> str:
    """The text that git has of a file; "" if it has none. path: from the top of the repository."""
    git = ["git", "cat-file", "blob", f":{path}"]
    return subprocess.run(git, cwd=folder, capture_output=True).stdout.decode()


def after_saving(model: dict, os_path: str, **_: object) -> None:
    """The server's post_save_hook: after a run alone `git status` shows nothing."""
    path = Path(os_path)
    if model.get("type") != "notebook" or path.parent.name != "notebooks":
        return

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=path.parent, capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        known = committed(f"./{path.name}", path.parent)
        is_same = known and cleaned(path.read_text("utf-8"), known) == known
        if is_same and git("config", "filter.chapters.clean"):
            git("add", "--", path.name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError):
        pass  # a reader's own notebook, or no git: the save itself has succeeded


def main(path: str) -> None:
    given = sys.stdin.buffer.read()
    try:
        result = cleaned(given.decode(), committed(path)).encode()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        result = given
    sys.stdout.buffer.write(result)


if __name__ == "__main__":
    main(sys.argv[1])
