"""The handle that `load` returns, and the handles of this process."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from jitloader import arguments, tracebacks
from jitloader.arguments import arguments_for, recipe_of
from jitloader.building import builds_of, readings
from jitloader.builds import Build, Builds, Diff
from jitloader.cache import Cache, free_in_child
from jitloader.formulas import Formulas
from jitloader.functions import Functions
from jitloader.inputs import Inputs
from jitloader.opening import NotCopied, OpenBuild, open_build, opened, opened_now
from toolchain.code import Recipe
from toolchain.errors import CompileError

if TYPE_CHECKING:  # what a warm load does not need is imported in functions
    from jitloader.shapes import OfClass
    from toolchain.listing import Listing
    from toolchain.listing_diff import ListingDiff


class _Described:
    """The docstring of a class; for an instance, its functions' signatures come first."""

    def __init__(self, text: str):
        self.text = text

    def __get__(self, kernel: Kernel | None, owner: type) -> str:
        if kernel is None or not kernel._functions.newest:
            return self.text
        return "\n".join([*kernel.signatures(), "", inspect.cleandoc(self.text)])


class Kernel(NotCopied):
    """What `load` returns: the newest build of some sources, and the way to newer and older ones.

    Every function of the binding is an attribute (`kernel.forward`). Handles are made by `load`,
    one for each set of sources, target and flags in a process. So a copy is the same handle, and
    unpickling gives the same handle; in another process it loads the kernel.
    """

    __doc__ = _Described(__doc__)

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self._functions = Functions(self, self._no_such)
        self._inputs: Inputs | None = None  # of the newest build, or of the error
        self._instrumented: tuple[Recipe, Inputs, OpenBuild] | None = None  # for lab.check
        self._formulas = Formulas(recipe.name, self._is_covered, self._functions.run_with)
        self._lock = free_in_child(threading.RLock())

    def reload(self) -> bool:
        """Make the build of the files as they are now the one that runs.

        Returns:
            True if that changed anything, False if it is already the newest build.

        Raises:
            CompileError: they do not compile; until they do, calls of this kernel raise it too.
        """
        with tracebacks.hidden(), self._lock:
            try:
                for inputs in readings(self.recipe):
                    self._inputs = inputs
                    if build := opened(inputs):
                        break
                if build is not self._functions.newest:
                    self._formulas.register(build)
                    self._functions.classes = self._classes(inputs)
            except BaseException as error:
                # Broken or interrupted: later calls must not run the old kernel.
                interrupted = RuntimeError(
                    f"the build of {self.name} was interrupted: load it again"
                )
                self._functions.error = error if isinstance(error, Exception) else interrupted
                if not isinstance(error, CompileError) or error.of_machine:  # try again
                    self._inputs = None
                self._functions.redirect()
                raise
            changed = build is not self._functions.newest
            swapped = changed and self._functions.newest is not None
            recovered, self._functions.error = self._functions.error is not None, None
            self._functions.newest = build
            if changed or recovered:
                self._functions.redirect()
                if build.build.aliases:
                    from jitloader import aliases

                    aliases.offer(build.build, partial(getattr, self))
            if swapped:
                _tell_dynamo()
            return changed

    def _classes(self, inputs: Inputs) -> list[OfClass]:
        """The builds for the classes of shapes in the inputs' tuning tables."""
        if not inputs.tuned_by_shape:
            return []
        from jitloader.shapes import opened_for

        return opened_for(inputs, self._opened_with)

    def _register_formulas(self) -> None:
        """Register a new formula for the builds that run."""
        for build in (self._functions.newest, *(it.build for it in self._functions.classes)):
            self._formulas.register(build)

    def _opened_with(self, flags: tuple[str, ...]) -> OpenBuild:
        """The build of the same files with more flags."""
        _, build = opened_now(replace(self.recipe, flags=(*self.recipe.flags, *flags)))
        self._formulas.register(build)
        return build

    def is_current(self) -> bool:
        """Whether the files are still those of the newest build, or of the error that replaces it.

        If nothing changed this reads only the files' dates: about 0.1 ms.
        """
        with self._lock:
            return self._inputs is not None and self._inputs.are_current()

    def builds(self) -> Builds:
        """Every build of these sources for this target in the cache, newest first.

        A list of Build, shown as a table; `lines` are those added and removed since the build
        before, in sources and headers.
        """
        return builds_of(self.recipe)

    def at(self, build: Build | str | int | None = None) -> OpenBuild:
        """One build, to call beside the newest: `kernel.at(1).forward(x)`.

        Args:
            build: one of `builds()`, its position there (0 is the newest), or the first characters
                of its digest. None is the build that runs now, which a torch.autograd.Function of
                your own should keep for its backward pass.

        Raises:
            LookupError: the cache holds no such build.
            CompileError: build is None, and the files do not compile.
        """
        if build is None:
            return self._functions.running()
        build = self._found(build)
        if not (Cache.here().trusts(build.folder) and build.is_whole()):
            raise LookupError(
                f"build {build.digest} in {build.folder} is damaged, gone, or open to others"
            )
        with self._lock:
            opened_build = open_build(build, self.recipe)
            self._formulas.register(opened_build)
            return opened_build

    def instrumented(self, trace: bool = False, flags: tuple[str, ...] = ()) -> OpenBuild:
        """A build of the same files for `lab.check`: on the CPU, with every access reported.

        trace: report every line, too, for `lab.trace`. flags: further compiler flags.

        Raises:
            CompileError: they do not compile.
        """
        flags = (*self.recipe.flags, *flags)
        recipe = replace(
            self.recipe, target="cpu", debug=False, check=True, trace=trace, flags=flags
        )
        with self._lock:
            known = self._instrumented
            if known is None or known[0] != recipe or not known[1].are_current():
                self._instrumented = known = recipe, *opened_now(recipe)
            self._functions.instrumented = build = known[2]
        self._formulas.register(build)
        return build

    def for_gpu(self, compile: bool = True) -> Build | None:
        """The build of the same files for a GPU, for its machine code. No GPU need be here.

        compile: whether to compile it if the cache has none; if not, None is returned.

        Raises:
            MissingTool: there is no nvcc.
            CompileError: they do not compile.
        """
        from jitloader.building import cached, ensure  # late: a warm load does not need it
        from jitloader.variants import variant_of

        recipe = variant_of(self, {}, for_gpu=True)
        return ensure(recipe) if compile else cached(next(readings(recipe)))

    def debug(
        self,
        function: Callable | str,
        *args: object,
        commands: Sequence[str] | None = None,
        **kwargs: object,
    ) -> str:
        """Call `function(*args, **kwargs)` in a process of its own, on the simulator, under gdb.

            kernel.debug("forward", x)   # at a terminal: gdb's prompt; then: run
            kernel.debug("forward", x, commands=["break mine.cu:12 thread 3,0,0", "run", "bt"])

        docs/trace.md says which of CUDA's concepts gdb shows.

        Args:
            function: the name of one of this kernel's, `kernel.name[grid, block]`, or any function.
            args, kwargs: its arguments, which are copied.
            commands: gdb commands, if there is no terminal, as in a notebook.

        Returns:
            The output of gdb and of the call; without commands, "".

        Raises:
            MissingTool: there is no gdb.
            CompileError: the files do not compile.
            RuntimeError: there are no commands, and no terminal to type them at.
            TypeError: the function or an argument cannot be sent to another process.
        """
        from jitloader import debugger  # late: a warm load does not need it
        from jitloader.building import ensure

        debugger.gdb()
        with tracebacks.hidden():
            ensure(debugger.recipe_for(self.recipe))
        called = getattr(self, function) if isinstance(function, str) else function
        return debugger.debug_call(called, args, kwargs, commands)

    @contextlib.contextmanager
    def in_place(self, recipe: Recipe) -> Iterator[OpenBuild]:
        """In this block the functions are those of another recipe's build, with its formulas.

        Raises:
            CompileError: its files do not compile.
        """
        _, build = opened_now(recipe)
        self._formulas.register(build)
        functions = self._functions
        before = functions.instead, functions.instrumented
        functions.instead, functions.instrumented = lambda: build, build
        functions.redirect()
        try:
            yield build
        finally:
            functions.instead, functions.instrumented = before
            functions.redirect()

    def diff(self, before: Build | str | int, after: Build | str | int) -> Diff:
        """What changed between two builds in sources and headers, named as for `at`.

        `print(kernel.diff(1, 0))` shows the newest edit.

        Raises:
            LookupError: the cache holds no such build.
        """
        return Diff(self._found(before), self._found(after))

    def whole(self) -> Build:
        """The newest build, once all of it is compiled.

        For some time after an edit, functions that were not called yet may not be compiled.

        Raises:
            CompileError: it does not compile.
        """
        return self._whole(self.build)

    def _whole(self, build: Build) -> Build:
        if not build.launchers:
            return build
        from jitloader import lazy_launchers  # late: a warm load does not need it

        return lazy_launchers.whole(build, self.recipe)

    def resources(self, threads: int = 256, *, whole: bool = True) -> list:
        """Registers, spills, shared memory and occupancy of each kernel of the newest build.

        A list with an item for each kernel and architecture, shown as a table. An item's `spilled`
        is the bytes of registers that a thread keeps in local memory; `occupancy(threads, shared)`
        is the occupancy with blocks of so many threads and bytes of dynamic shared memory. For a
        build without registers, by the simulator or JITLOAD_DEBUG, it is empty and says so.

        Args:
            threads: of a block, for the occupancy that the table shows.
            whole: wait until all kernels are compiled. If False, for some time after an edit only
                kernels that have been launched are listed.
        """
        from toolchain.resources import Resources, uses  # late: a warm load does not need it

        note = (
            f"{self.name} is built for {self.target}"
            f"{' without optimisation' if self.recipe.debug else ''}: it has no registers to count."
        )
        if self.target == "cpu":
            note += f" With nvcc, `python -m jitload resources {self.name}` shows those of a GPU."
        if whole or not self.build.launchers:
            log = self.whole().log()
        else:
            from jitloader import lazy_launchers  # late: a warm load does not need it

            log = lazy_launchers.output_of_parts(self.build)
        return Resources(uses(log), threads, note)

    def sass(
        self,
        name: str = "",
        *,
        line: int | str | None = None,
        architecture: str | None = None,
        against: Build | str | int | None = None,
    ) -> Listing | ListingDiff:
        """The GPU's machine code of the newest build, beside the source lines that made it.

        `kernel.sass("forward", line=42)` has the instructions of one line; `kernel.sass(against=1)`
        is what the newest edit changed, except for register numbers.

        Args: as of `Build.sass`; against: an older build, named as for `at`.

        Returns, raises: as `Build.sass`. For a build without GPU machine code, by the simulator,
        the list is empty and says so.
        """
        older = None if against is None else self._whole(self._found(against))
        return self.whole().sass(name, line=line, architecture=architecture, against=older)

    def ptx(
        self,
        name: str = "",
        *,
        line: int | str | None = None,
        architecture: str | None = None,
        against: Build | str | int | None = None,
    ) -> Listing | ListingDiff:
        """The PTX of the newest build, which nvcc makes again for this; otherwise as `sass`."""
        older = None if against is None else self._whole(self._found(against))
        return self.whole().ptx(name, line=line, architecture=architecture, against=older)

    def _found(self, named: Build | str | int) -> Build:
        if isinstance(named, Build):
            return named
        known = self.builds()
        if isinstance(named, int):
            matches = known[named : named + 1 or None]
        else:
            matches = [build for build in known if build.digest.startswith(named)]
        if len(matches) != 1:
            listed = ", ".join(f"{i}: {build.digest}" for i, build in enumerate(known))
            raise LookupError(
                f"build {named!r} of {self.recipe.name} is"
                f" {'ambiguous' if matches else 'not in the cache'}; there are {listed}"
            )
        return matches[0]

    def register_fake(self, name: str) -> Callable[[Callable], Callable]:
        """Decorator: the fake implementation of op `name`, as in `torch.library.register_fake`."""

        def decorate(formula: Callable) -> Callable:
            self._formulas.add_fake(name, formula)
            self._register_formulas()
            return formula

        return decorate

    def register_autograd(
        self,
        name: str,
        backward: Callable | str,
        *,
        setup_context: Callable | None = None,
        infer: str | None = None,
    ) -> Callable:
        """Register the gradient of op `name`, as in `torch.library.register_autograd`.

        It works under torch.func too; forward-mode differentiation raises NotImplementedError.

        backward: a function, or lines of text that say which functions of the kernel compute the
            gradients of which inputs, as in "x, weight = backward(grad, x, weight, rstd, eps)",
            where rstd is an output's name in the schema. Text needs no setup_context, and runs
            without Python, in less time: `jitloader.gradient_text` has the rules.
        infer: an op to call if no gradient is wanted. It takes the first arguments of op `name`
            (all of them, if backward is text) and returns its first results. So a small call does
            not spend time on making the others.

        Returns:
            A function with the results of `infer`. It calls `infer` if nothing is recorded and only
            arguments of `infer` are given, else op `name`.

        Raises:
            TypeError: it is no op of a binding; nothing is registered then.
            ValueError: the text cannot be read, or names something that does not exist.
        """
        newest = self._functions.newest
        if newest and not hasattr(getattr(torch.ops, newest.build.name), name):
            if name not in newest.functions:
                raise AttributeError(self._no_such(name))
            raise TypeError(
                f"{self.name}.{name} is no op of PyTorch's, since no TORCH_LIBRARY binds it. Make"
                " one of the Python function that calls it, by @lab.op(backward=...) above that"
                " function (lab.op? shows how), or write a binding"
            )
        if isinstance(backward, str):
            self._formulas.add_text(name, backward, sys._getframe(1).f_code)
            self._formulas.derivative(self._functions.newest, name)  # raises if it is wrong
        else:
            self._formulas.add_gradient(name, backward, setup_context)
        if infer:
            self._formulas.infers[name] = infer
        self._register_formulas()
        self._functions.redirect()
        return getattr(self, infer or name)

    def register_autocast(
        self, name: str, keep: tuple[str, ...] = (), policy: str = "promote"
    ) -> None:
        """Let op `name` take tensors of several floating types inside torch.autocast.

        keep: arguments that stay as they are and do not count, such as a buffer of accumulators.
        policy: what the others are cast to, in PyTorch's names: with "promote" to the widest of
            their types, as PyTorch does for pointwise ops; with "lower_precision_fp" to autocast's
            type, unless they are float64, as PyTorch does for matrix products.

        Raises:
            ValueError: there is no such policy.
        """
        from jitloader import autocast

        if policy not in autocast.AUTOCAST_POLICIES:
            wanted = ", ".join(map(repr, autocast.AUTOCAST_POLICIES))
            raise ValueError(f"policy is {policy!r}; wanted is one of {wanted}")
        self._formulas.autocast[name] = policy, tuple(keep)
        self._register_formulas()

    def signatures(self) -> list[str]:
        """How each function of the newest build is called, without its stream parameter, such as
        "mine.add[grid, block](const float* x, float* y, int n)"."""
        from toolchain.signatures import STREAM

        shown = []
        for name, declared in self.build.exports.items():
            if name not in self._functions.newest.functions:
                continue  # found in the text, but not compiled: a macro or an #if
            if declared is None:
                shown.append(f"{self.name}.{name}")
                continue
            launch = "[grid, block]" if "kernel" in declared else ""
            if "template" in declared:
                launch = f"[{declared['template']}][grid, block]"
            given = ", ".join(p for p in declared["parameters"] if STREAM not in p)
            shown.append(f"{self.name}.{name}{launch}({given})")
        return shown

    def _is_covered(self, code: CodeType | None) -> bool:
        """Whether the builds' digest covers this code, that is, whether it is in the op's .py."""
        home = arguments.op_file(self.recipe.name, ".py")
        return bool(self.recipe.formulas and code) and Path(code.co_filename) == home

    def _no_such(self, name: str) -> str:
        names = ", ".join(self._functions.newest.functions) if self._functions.newest else ""
        message = f"kernel {self.recipe.name!r} has no function {name!r}; it has: {names or 'none'}"
        why = self.explanations().get(name) if self._functions.newest else None
        return f"{message}\n{why}" if why else message

    def _not_a_function(self) -> TypeError:
        ways = self.signatures() if self._functions.newest else []
        return TypeError(
            f"{self.name} holds what its sources define; launch or call one of these:"
            f" {'; '.join(ways) or 'none'}"
        )

    def explanations(self) -> dict[str, str]:
        """Why definitions of the .cu files cannot be called from Python: a sentence for each name.

        It is empty for a build with a binding, which decides what can be called, or if the cache no
        longer has the build.
        """
        from toolchain.launchers import explanations  # late: a warm load does not need it

        if self.build.binding != "c":
            return {}
        with contextlib.suppress(OSError):
            return explanations(self.build.sources(), self.build.exports)
        return {}

    def __getitem__(self, key: object) -> Any:
        raise self._not_a_function()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise self._not_a_function()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(self._no_such(name))

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def target(self) -> str:
        return self.recipe.target

    @property
    def sources(self) -> tuple[Path, ...]:
        return self.recipe.sources

    @property
    def build(self) -> Build:
        """The newest build, which runs."""
        return self._functions.newest.build

    @property
    def notes(self) -> list[str]:
        """Parts of sources and flags that have another meaning for this target than for nvcc."""
        return self.build.notes

    @property
    def digest(self) -> str:
        return self.build.digest

    @property
    def library(self) -> Path:
        return self.build.library

    @property
    def seconds(self) -> float:
        """How long the newest build took to compile."""
        return self.build.seconds

    def __reduce__(self) -> tuple:
        """The arguments of `load`, and the modules that define its formulas."""
        modules = self._formulas.modules() - {"__main__", "__mp_main__"}
        return _unpickled, (*arguments_for(self.recipe), sorted(modules))

    def __repr__(self) -> str:
        state = "broken" if self._functions.error else self.digest
        return f"<Kernel {self.name} for {self.target}, {state}: {', '.join(self._functions)}>"


def _tell_dynamo() -> None:
    """Functions compiled around the old build must be traced again.

    Dynamo's guards would notice, but it gives up after eight recompilations of a function.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


_kernels: dict[Recipe, Kernel] = {}
_loading = free_in_child(threading.RLock())


def handle_for(recipe: Recipe) -> Kernel:
    """The handle of a recipe in this process, brought up to date.

    Raises:
        CompileError, MissingTool: its files cannot be built.
        RuntimeError: it is for a GPU, and torch sees none.
    """
    if recipe.target == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            'target="cuda" needs a GPU, and torch sees none here. Leave target out to run on the'
            " CPU's simulator; `python -m jitload build --target cuda` only compiles"
        )
    with _loading:
        key = replace(recipe, formulas="")
        if key not in _kernels:
            _kernels[key] = Kernel(recipe)
        kernel = _kernels[key]
        kernel.recipe = recipe  # formulas change if kernels/NAME.py is imported again
    kernel.reload()
    if kernel._functions.instead is None:
        for join in _joining:
            join(kernel)
    return kernel


def _unpickled(sources: list[str], options: dict[str, Any], modules: list[str]) -> Kernel:
    """The kernel, if this process has it; else it is loaded with its formulas."""
    for module in modules:
        importlib.import_module(module)
    recipe = recipe_of(sources, **options)
    with _loading:
        kernel = _kernels.get(replace(recipe, formulas=""))
    return kernel if kernel and kernel._functions.newest else handle_for(recipe)


_joining: list[Callable[[Kernel], None]] = []  # functions of `instrumented` for each loaded kernel


@contextlib.contextmanager
def instrumented(
    opened: Callable[[OpenBuild], None], trace: bool = False, flags: tuple[str, ...] = ()
) -> Iterator[None]:
    """In this block every function of every kernel, also of those loaded in it, is that of the
    kernel's instrumented build.

    A build is made when its kernel is first called; `opened` is called with it before each call.
    """

    def of(kernel: Kernel) -> OpenBuild:
        build = kernel.instrumented(trace, flags)
        opened(build)
        return build

    def instead(build: str) -> str:
        """For a recorded backward pass: replace only the newest build of a kernel."""
        for kernel in kernels:
            if build == kernel.build.name:
                return of(kernel).build.name
        return build

    def join(kernel: Kernel) -> None:
        kernels.append(kernel)
        kernel._functions.instead = partial(of, kernel)
        kernel._functions.redirect()

    from jitloader import derivatives

    kernels: list[Kernel] = []
    _joining.append(join)
    try:
        for kernel in loaded():
            join(kernel)
        with derivatives.redirected(instead):
            yield
    finally:
        _joining.remove(join)
        for kernel in kernels:
            kernel._functions.instead = None
            kernel._functions.redirect()


def loaded() -> list[Kernel]:
    """The handles of this process: all kernels that `load` has returned."""
    with _loading:
        return [kernel for kernel in _kernels.values() if kernel._functions.newest]
