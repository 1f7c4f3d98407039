"""`%load_ext lab`: kernels follow their files, and cells may hold kernels.

Before a cell runs, every loaded kernel whose sources or headers changed is rebuilt and swapped;
the rebuilt kernels and their changes are listed above the cell's output. A failed build is shown
there, and calls of that kernel raise its error until its files change: the old build never runs in
its place. The cell itself does run, because rejecting cells would also reject the one with the fix.
reference.py and kernels/NAME.py are followed too: see `lab.notebook.modules`.

`%%cu NAME` compiles a cell: see `lab.notebook.cu_magic`; `%%check` checks one, and `%%audit` tries
every trap on the op that it calls: see `lab.notebook.check_magic` and `audit_magic`.
`%unload_ext lab` undoes all of this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import IPython

import jitload
from lab.notebook.builds import Line, LiveBuilds, report, told_apart
from lab.notebook.errors import Cells, log_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

ASKS_MATCHERS = (8, 6)  # IPython's first release that can ask `completion`; Colab has an older one
# A cell whose magic is not on its first line, which IPython takes for Python.
_FIRST_TOO_LATE = re.compile(r"(?:(?:[ \t]*(?:#.*)?\n)+[ \t]*|[ \t]+)(%%(?:cu|cuda|check|audit)\b)")
_CUDA = re.compile(r"\b__(?:global|device|host|shared)__\b")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]", re.M)
_LAUNCH = re.compile(r"([\w.]+)[ \t]*<<<(.*?)>>>")


def _for_python(cell: str, refused: str) -> str | None:
    """Advice for a cell that is not Python but CUDA.

    refused: the line that Python rejects.
    """
    if magic := _FIRST_TOO_LATE.match(cell):
        return (
            f"{magic[1]} has to be the first line of its cell, without a space before it: move what"
            " stands above it to another cell, or below it as //"
        )
    if cell.lstrip().startswith("%%"):
        return None
    if _CUDA.search(refused) or _INCLUDE.search(cell):
        return "this is CUDA C++: its cell begins with a line that names it, such as %%cu mine"
    if launch := _LAUNCH.search(cell):
        return f"in Python brackets launch a kernel: {launch[1]}[{launch[2]}](...)"
    return None


class Extension:
    """What `%load_ext lab` adds to a shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        from lab.notebook.audit_magic import Audits
        from lab.notebook.check_magic import Checks
        from lab.notebook.cu_magic import CellKernels
        from lab.notebook.modules import Modules

        self.modules = Modules()
        self.shell, self.live, self.matchers = shell, LiveBuilds(), _matchers()
        self.places = Cells(shell)
        self.cells = CellKernels(shell, self.live, self.places)
        self.checks, self.audits = Checks(shell), Audits(shell)
        self.rejection = RejectCell(shell)
        self._errors: dict[jitload.Kernel, str] = {}  # shown already
        self._above: list[tuple[jitload.Kernel, Exception, Line]] = []  # the cell that runs

    def start(self) -> None:
        self.modules.note()
        self.shell.register_magics(self.cells, self.checks, self.audits)
        self.shell.events.register("pre_run_cell", self.follow_files)
        self.shell.events.register("post_run_cell", self.say_once)
        self.shell.Completer.custom_matchers.extend(self.matchers)
        if getattr(self.shell, "kernel", None):  # a terminal has the loader's own line
            jitload.listen(self.live)
        self.shell._showtraceback = self.show_with_links

    def stop(self) -> None:
        self.shell.events.unregister("pre_run_cell", self.follow_files)
        self.shell.events.unregister("post_run_cell", self.say_once)
        del self.shell._showtraceback
        magics = self.shell.magics_manager.magics
        names = {"cell": ("cu", "cuda", "check", "audit"), "line": ("check", "audit")}
        for kind, own in names.items():
            for name in own:
                magics[kind].pop(name)
        for matcher in self.matchers:
            self.shell.Completer.custom_matchers.remove(matcher)
        jitload.unlisten(self.live)
        self.rejection.withdraw()

    def follow_files(self, info: object = None) -> None:
        """Rebuild and swap what changed."""
        self.rejection.withdraw()
        self._above.clear()
        try:
            for kernel in jitload.loaded():
                if not kernel.is_current() and kernel not in self.cells.replaced:
                    self._rebuild(kernel)
            self.modules.follow(self.shell.user_ns)
        except KeyboardInterrupt:
            self.rejection.announce()

    def say_once(self, result: ExecutionResult) -> None:
        """If the cell raised the same error that is shown above it, remove that one."""
        self.modules.note()
        error = result.error_before_exec or result.error_in_exec
        if isinstance(error, SyntaxError):
            hint = _for_python(result.info.raw_cell, error.text or "")
            if hint:
                print(hint)
        for kernel, error, line in self._above:
            if getattr(self.shell, "kernel", None) and result.error_in_exec is error:
                line.tell(told_apart(kernel), "not built; its error stands below")

    def show_with_links(self, kind: type, error: BaseException, lines: list[str]) -> None:
        """As the shell shows any error, with links that JupyterLab can follow."""
        message = [jitload.linked(self.places.named(line)) for line in lines[-1:]]
        beside = self.places.links(message[0]) if message else ""
        if getattr(self.shell, "kernel", None) and (log := log_of(error)):
            beside += log
            message = [re.sub(r"\n?full log: .*", "", message[0])]
        if hint := jitload.device_hint(error):
            message.append(hint)
        type(self.shell)._showtraceback(self.shell, kind, error, [*lines[:-1], *message])
        if beside:
            IPython.display.display({"text/html": beside, "text/plain": ""}, raw=True)

    def _rebuild(self, kernel: jitload.Kernel) -> None:
        line, before = Line(), kernel.build

        def reload() -> jitload.Kernel:
            kernel.reload()
            return kernel

        try:
            with self.live.shown_in(line):
                report(line, reload, before)
            self._errors.pop(kernel, None)
        except KeyboardInterrupt:
            line.tell(told_apart(kernel), "build interrupted; the next cell starts it anew")
            raise
        except Exception as error:
            # A missing file is looked for before every cell, but reported once.
            if isinstance(error, jitload.CompileError) or self._errors.get(kernel) != str(error):
                line.show_error(error, f"Calls of {kernel.name} raise this until its files change.")
                self._above.append((kernel, error, line))
            self._errors[kernel] = str(error)


def _matchers() -> list[Callable]:
    """The matchers that complete CUDA's names in %%cu cells."""
    if IPython.version_info < ASKS_MATCHERS:
        return []
    from lab.notebook.completion import complete

    return [complete]


class RejectCell(ast.NodeTransformer):
    """Rejects the one cell that is about to run: the stop button, pressed during a build before it.

    IPython runs the cell even if a KeyboardInterrupt leaves the hook, but gives its syntax tree to
    the shell's transformers first.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def announce(self) -> None:
        self.shell.ast_transformers.append(self)

    def withdraw(self) -> None:
        if self in self.shell.ast_transformers:
            self.shell.ast_transformers.remove(self)

    def visit(self, node: ast.AST) -> ast.AST:
        from IPython.core.error import InputRejected

        self.withdraw()
        raise InputRejected("interrupted: this cell did not run")


_extensions: dict[int, Extension] = {}  # by the shell's id


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext lab`."""
    unload_ipython_extension(shell)
    _extensions[id(shell)] = extension = Extension(shell)
    extension.start()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext lab`."""
    if extension := _extensions.pop(id(shell), None):
        extension.stop()
