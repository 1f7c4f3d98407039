"""The wheel: the command as a package, and within it the library and the originals of its folders.

A .pth file puts the library on Python's path, behind the other packages, whose files it so leaves
alone. An editable install is setuptools' own: the clone on Python's path.

Either puts the page's extension where JupyterLab finds it.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a build by pip does not have it there

from kernel_playground.contents import FOLDER, LIBRARY, files  # noqa: E402

PACKAGE = "kernel_playground"
PARTS = {f"{PACKAGE}/library": LIBRARY, f"{PACKAGE}/originals": FOLDER}
PATH = f"{PACKAGE}.pth"
PATH_LINES = """\
kernel_playground/library
kernel_playground/originals
import playground_folder; playground_folder.install()
"""


class Build(build_py):
    """Takes the parts along, unless the clone itself is going to be on the path."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(Path(self.build_lib, PACKAGE), ignore_errors=True)  # of an earlier build
        super().run()
        for place, source in self._copies().items():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        Path(self.build_lib, PATH).write_text(PATH_LINES)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        more = [] if self.editable_mode else [*self._copies(), Path(self.build_lib, PATH)]
        return super().get_outputs(include_bytecode) + list(map(str, more))

    def _copies(self) -> dict[Path, Path]:
        """Where a file goes, by where it lies."""
        return {
            Path(self.build_lib, place, name): HERE / name
            for place, parts in PARTS.items()
            for name in files(parts, HERE)
        }


# Where JupyterLab looks for extensions of its pages: any that is started in this environment, with
# our command or without, then has CUDA's colours.
COLOURS = "labextensions/kernel-playground"
FILES = [f"lab/share/{COLOURS}/{name}" for name in ("package.json", "remoteEntry.js")]

setup(cmdclass={"build_py": Build}, data_files=[(f"share/jupyter/{COLOURS}", FILES)])
