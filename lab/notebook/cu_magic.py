"""`%%cu NAME [--target cuda|cpu] [FLAGS]`: a cell of CUDA becomes the kernel NAME; and
`%%cu [NAME] [--target cuda|cpu] [FLAGS] --run [ARGUMENTS]`: a cell with a main() is run.

    %%cu scale -DTHREADS=256
    __global__ void by(const float* x, float* y, int n, float factor) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * factor;
    }

and then, in Python, `scale.by[(n + 255) // 256, 256](x, y, n, 2.0)`: grid and block in brackets,
then the kernel's arguments, tensors for pointers. FLAGS go to the compilers.

A cell may instead define functions that launch its kernels; then it offers those functions:

    extern "C" cudaError_t twice(const float* x, float* y, int n, cudaStream_t stream) {
        by<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(x, y, n, 2);
        return cudaGetLastError();
    }

after the kernel makes it `scale.twice(x, y, n)`; the stream is filled in.

The source is written to scratch/NOTEBOOK/NAME.cu beside the notebook (scratch/NAME.cu where no
notebook is known), line for line, so that errors and profilers point at the cell's own lines. You
can open it, diff its builds or load it elsewhere. Running the cell writes it again. If another
process already writes there, this one uses a folder inside, session_2.

A whole program, such as a sample from the web, is compiled and run in its own process, in the
notebook's folder. Its output appears below the cell as it comes, and its exit status and time above
that. Its arguments are all words after --run. Interrupting the cell ends it.

`%%cuda` is the same magic, under the name that other extensions give theirs; without a name, it
runs a cell that has a main(), as they do.

A binding may stand in the same cell: what follows a line that begins with `// ---- binding` is
compiled beside the kernels, as NAME.cpp, and faster than as a part of the .cu. A cell that has a
binding and no kernel is NAME.cpp alone. #include looks beside the notebook, too.

Tab completes CUDA's names in such a cell (`lab.notebook.completion`). JupyterLab has neither a
setting nor a message of the kernel that colours one cell, or a .cu file, as C++: lab/share does it,
an extension of the page itself. `make lab` names it in JUPYTER_PATH, and a wheel puts it where any
JupyterLab of its environment finds it. Shift-Tab shows a kernel's parameters as C declares them.
"""

import codecs
import fcntl
import itertools
import keyword
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import IO

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser

import jitload
from lab.notebook.builds import Line, LiveBuilds, report
from lab.notebook.errors import Cells

BINDING = re.compile(r"^// ---- binding\b", re.MULTILINE)

_arguments = MagicArgumentParser(prog="%%cu", add_help=False)
_arguments.add_argument("name", nargs="?")
_arguments.add_argument("--target", choices=("cuda", "cpu"))


@magics_class
class CellKernels(Magics):
    """The magic, and the kernels that it made.

    replaced: handles that a later run of their cell put another one in place of (it had other
    flags, or gained a binding). Their file is no longer theirs, so they stay at their last build.
    """

    def __init__(self, shell: InteractiveShell, live: LiveBuilds, places: Cells) -> None:
        super().__init__(shell)
        self.live, self.places = live, places
        self.replaced: set[jitload.Kernel] = set()
        self._newest: dict[Path, jitload.Kernel] = {}  # by the file's path without its suffix

    @cell_magic
    def cuda(self, line: str, cell: str) -> None:
        """Another name of %%cu: see %%cu? Without a name, a cell that has a main() is run."""
        words = shlex.split(line)
        options, _ = _arguments.parse_known_args(words)
        is_program = options.name is None and "--run" not in words and jitload.has_main(cell)
        self.cu(f"{line} --run" if is_program else line, cell)

    @cell_magic
    def cu(self, line: str, cell: str) -> None:
        """Compile the cell's CUDA source as a kernel: %%cu NAME [--target cuda|cpu] [FLAGS]

        A kernel of one's own against PyTorch's op, error and time, in three cells:

            %load_ext lab
            import lab, torch

            %%cu mine
            __global__ void sigmoid(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = 1 / (1 + expf(-x[i]));
            }

            def sigmoid(x):
                y = torch.empty_like(x)
                mine.sigmoid[(x.numel() + 255) // 256, 256](x, y, x.numel())
                return y
            x = torch.randn(1 << 20, device=mine.target)
            lab.compare_calls({"mine": sigmoid, "torch": torch.sigmoid}, inputs=x)

        A function that calls kernels becomes an op with a gradient, for training and torch.compile:

            def softplus_grad(grad, x):
                dx = torch.empty_like(x)
                mine.backward[(x.numel() + 255) // 256, 256](grad, x, dx, x.numel())
                return dx

            @lab.op(backward=softplus_grad)
            def softplus(x: torch.Tensor) -> torch.Tensor:
                y = torch.empty_like(x)
                mine.forward[(x.numel() + 255) // 256, 256](x, y, x.numel())
                return y

        A cell may also hold an extern "C" function that launches its kernels: `mine.run(x, y, n)`.
        FLAGS go to the compilers, as in -DROWS=4.

        A whole program, with a main(), is run with what stands behind --run as its arguments:

            %%cu --run 1024
            #include <cstdio>
            int main(int argc, char** argv) { printf("%s\\n", argv[1]); }
        """
        words = shlex.split(line)
        cut = words.index("--run") if "--run" in words else len(words)
        options, flags = _arguments.parse_known_args(words[:cut])
        if cut < len(words):
            self.run(options.name or "program", cell, options.target, flags, words[cut + 1 :])
            return
        name = options.name
        if name is None:
            raise UsageError(how_to_name(cell))
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"%%cu: {name!r} is no name of a variable; wanted as in: %%cu scale")
        taken = self.shell.user_ns.get(name)
        if not (taken is None or isinstance(taken, jitload.Kernel)):
            kind = f"a {type(taken).__name__}"
            raise UsageError(
                f"%%cu: {name} is {kind} here, which the kernel would replace: choose another name,"
                f" as in %%cu my_{name}, or say del {name} before"
            )
        place = claimed(scratch(self.shell)) / name
        paths = write(place, cell)
        self.places.note(paths)
        target = options.target or jitload.default_target()
        earlier = self._newest.get(place)
        as_before = earlier is not None and (paths, flags, target) == (
            list(earlier.sources),
            list(earlier.recipe.flags),
            earlier.target,
        )
        if earlier and not as_before:  # must not run in place of a cell that fails to compile
            self.replaced.add(earlier)
            self.shell.user_ns.pop(name, None)
        shown = Line()

        def load() -> jitload.Kernel:
            return jitload.load(*paths, target=target, flags=flags, include=[Path.cwd()])

        try:
            with self.live.shown_in(shown):
                kernel = report(shown, load, earlier.build if as_before else None, signatures)
        except BaseException:
            shown.tell(name, "not built")
            raise
        self.replaced.discard(kernel)
        self._newest[place] = self.shell.user_ns[name] = kernel

    def run(
        self, name: str, cell: str, target: str | None, flags: list[str], arguments: list[str]
    ) -> None:
        """Build a cell's program, and run it in the notebook's folder."""
        if not name.isidentifier():
            raise UsageError(f"%%cu: {name!r} is no name; wanted as in: %%cu {name}_1 --run")
        paths = write(claimed(scratch(self.shell)) / name, cell)
        self.places.note(paths)
        shown, started = Line(), time.perf_counter()
        try:
            with self.live.shown_in(shown):
                program = jitload.Program(*paths, target=target, flags=flags, include=[Path.cwd()])
        except BaseException:
            shown.tell(name, "not built")
            raise
        took = time.perf_counter() - started
        built = f"built for {program.recipe.target} in {took:.1f} s"
        shown.tell(name, f"{built}; runs")
        output = Output()
        try:
            ran = program.run(arguments, output=output)
        except KeyboardInterrupt as stop:
            shown.tell(name, f"{built}; {stop}")
            raise
        finally:
            output.end()
        shown.tell(name, f"{built}; {ran}")


class Output:
    """Shows a program's output below the cell as it comes. Of very long output, which would freeze
    the page, it shows the beginning and the end."""

    MOST, LAST = 500_000, 20_000  # characters

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {1: decoder(errors="replace"), 2: decoder(errors="replace")}
        self._shown, self._left_out, self._last = 0, 0, ""

    def __call__(self, stream: int, printed: bytes) -> None:
        text = self._decoders[stream].decode(printed)
        shown, rest = text[: self.MOST - self._shown], text[self.MOST - self._shown :]
        self._shown += len(shown)
        self._left_out += len(rest)
        self._last = (self._last + rest)[-self.LAST :]
        to = sys.stdout if stream == 1 else sys.stderr
        to.write(shown)
        to.flush()

    def end(self) -> None:
        """Show the end of what was left out."""
        if left_out := self._left_out - len(self._last):
            print(f"\n... {left_out:,} characters are left out here ...")
        print(self._last, end="", flush=True)


def how_to_name(cell: str) -> str:
    """What to write instead of a %%cu without a name."""
    code = jitload.without_comments(cell)
    kernel = next(jitload.definitions(code), None)
    name = kernel.name if kernel else "scale"
    lines = [f"%%cu: name the kernel that this cell becomes, as in: %%cu {name}"]
    if kernel and kernel.obstacle() is None:
        parsed = (jitload.Parameter.parse(p, i) for i, p in enumerate(kernel.parameters, 1))
        given = ", ".join(parameter.name for parameter in parsed)
        lines.append(f"Then launch it from Python: {name}.{name}[grid, block]({given})")
    if jitload.has_main(cell):
        lines.append("Or run its main(): %%cu --run")
    return "\n".join(lines)


def scratch(shell: InteractiveShell) -> Path:
    """The folder for sources of cells: the notebook's own, in scratch/ beside it."""
    known = os.environ.get("JPY_SESSION_NAME")  # set by Jupyter's server
    notebook = Path(known or shell.user_ns.get("__vsc_ipynb_file__", ""))  # and that by VS Code
    here = Path.cwd() / "scratch"
    return here / notebook.stem if notebook.suffix == ".ipynb" else here


_claims: dict[Path, tuple[Path, IO[str]]] = {}  # this process's, with the locked files


def claimed(folder: Path) -> Path:
    """The folder; if another living process writes its cells there, a folder inside it.

    Otherwise two notebooks would overwrite each other's cells of the same name.
    """
    if folder not in _claims:
        for number in itertools.count(1):
            place = folder if number == 1 else folder / f"session_{number}"
            place.mkdir(parents=True, exist_ok=True)
            file = (place / ".session").open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends
            except BlockingIOError:
                file.close()
                continue
            except OSError:
                pass  # the file system has no locks
            _claims[folder] = place, file
            break
    return _claims[folder][0]


def write(place: Path, cell: str) -> list[Path]:
    """Write a cell's source to `place`.cu, `place`.cpp or both; line numbers are the cell's."""
    text = (
        f"// the cell %%cu {place.name} of a notebook, which writes this file when it runs\n{cell}"
    )
    code = jitload.without_comments(text)
    if marker := BINDING.search(text):
        above, below = text[: marker.start()], text[marker.start() :]
        parts = {".cu": above, ".cpp": "\n" * above.count("\n") + below}
    elif jitload.binding_of(text) != "c" and "__global__" not in code and "<<<" not in code:
        parts = {".cpp": text}
    else:
        parts = {".cu": text}
    place.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, part in parts.items():
        path = place.with_name(place.name + suffix)
        if not path.is_file() or path.read_text() != part:
            path.write_text(part)
        paths.append(path)
    return paths


def main_is_run_by(kernel: jitload.Kernel) -> str:
    """A note on the main() in a kernel's sources, which loading them does not run."""
    mains = (path for path in kernel.sources if jitload.has_main(path.read_text()))
    return f". Its main() is run by: %%cu {kernel.name} --run" if next(mains, None) else ""


def signatures(kernel: jitload.Kernel) -> str:
    """The kernel's signatures, without the stream, which is filled in; or why it has none."""
    if shown := kernel.signatures():
        return "; " + ", ".join(shown) + main_is_run_by(kernel)
    reasons = "\n".join(kernel.explanations().values())
    reasons = reasons or 'It defines neither a __global__ kernel nor an extern "C" function.'
    return f"; nothing in it can be called from Python. {reasons}"
