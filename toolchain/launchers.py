"""Kernels that no code launches: finds them, and writes launchers that Python can call.

    __global__ void add(const float* x, float* y, int n) { ... }

in a source, or in a file that it includes with quotes, gets in the compiled text a

    extern "C" cudaError_t jitload_launch_add(unsigned grid_x, ..., const float* x, float* y, int n)

which `kernel.add[grid, block](x, y, n)` calls (`jitloader.cfunctions.KernelFunction`). If the files
have an extern "C" function of their own, that decides how kernels are launched: then only kernels
that are launched nowhere get a launcher.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.scan import blank, closing, without_comments
from toolchain import sources
from toolchain.preprocess import Unit
from toolchain.signatures import ERROR, Parameter, launcher_of, obstacle
from toolchain.sources import LIBRARY, label

_NAME = re.compile(r"[\w\s:*&<>,]*?(?<![\w:])(\w+)\s*\(")  # after __global__
_QUALIFIERS = {"__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__"}
_QUALIFIERS |= {"__attribute__", "alignas"}
_FUNCTION = re.compile(  # a C++ function, at the beginning of a line
    r"^(?!.*\b(?:__global__|extern|template|static|return|else)\b)\w[\w\s:*&<>,]*?[\s*&](\w+)"
    r"\s*\([^;{}]*\)\s*\{",
    re.MULTILINE,
)


# ctypes has no half: the launcher takes a float, and C++ converts it.
_HALF_BY_VALUE = re.compile(r"\b(?:__half|half|__nv_bfloat16|nv_bfloat16)\b(?=\s+\w+$)")


@dataclass(frozen=True)
class Definition:
    """A kernel as its source defines it.

    parameters: the declarations, without defaults.
    scope: the named namespaces around it, as in "ns::".
    template: the parameters of the template; None if it is no template.
    path: the file that defines it at that line, if that is known.
    arguments: the template arguments, if it is an instance.
    """

    name: str
    parameters: tuple[str, ...]
    line: int
    scope: str = ""
    template: str | None = None
    path: Path | None = None
    arguments: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """Its name in a build's manifest; an instance's name contains the template arguments."""
        return symbol_of(self.name, self.arguments) if self.arguments else self.name

    def instance(self, arguments: tuple[str, ...]) -> Definition:
        """The instance of a template with these arguments, given as C++ text."""
        values: dict[str, str] = {}
        for i, (_, name, default) in enumerate(template_parameters(self.template)):
            values[name] = arguments[i] if i < len(arguments) else _replaced(default, values)
        declared = tuple(
            _HALF_BY_VALUE.sub("float", _replaced(text, values)) for text in self.parameters
        )
        return replace(self, template=None, parameters=declared, arguments=arguments)

    def obstacle(self) -> str | None:
        """Why Python cannot launch it; None if it can."""
        if self.template is not None:
            return "it is a template, and only a launcher says for which types"
        return obstacle(self.parameters)

    def export(self) -> dict:
        """Its entry in a build's manifest."""
        export = {"kernel": self.line, "returns": ERROR, "parameters": list(self.parameters)}
        return export | {"instance_of": [self.name, *self.arguments]} if self.arguments else export

    def is_offered_as_template(self) -> bool:
        """Whether Python can give its template arguments."""
        known = template_parameters(self.template)
        return bool(known) and all(kind and name for kind, name, _ in known)

    def launcher(self) -> str:
        """The C function that `KernelFunction` calls, on one line."""
        parsed = [Parameter.parse(text, i) for i, text in enumerate(self.parameters, 1)]
        names = [p.name if p.name.isidentifier() else f"argument_{i}" for i, p in enumerate(parsed)]
        declared = "".join(
            f", {text if p.name.isidentifier() else f'{text} {name}'}"
            for text, p, name in zip(self.parameters, parsed, names, strict=True)
        )
        kernel = f"{'::' * (self.name in names)}{self.scope}{self.name}"
        kernel += f"<{', '.join(self.arguments)}>" if self.arguments else ""
        types = ", ".join(f"decltype({name})" for name in names)
        # the cast excludes a function of the C library with the same name
        address = kernel if self.arguments else f"static_cast<void (*)({types})>({kernel})"
        extents = [f"unsigned jitload_{what}_{i}" for what in ("grid", "block") for i in "xyz"]
        grid, block = (
            f" ::dim3({', '.join(f'jitload_{what}_{i}' for i in 'xyz')})"  # a parameter may be dim3
            for what in ("grid", "block")
        )
        return (
            f'extern "C" cudaError_t {launcher_of(self.symbol)}({", ".join(extents)},'
            f" int jitload_shared, cudaStream_t jitload_stream{declared}) {{"
            f" if (jitload_shared > 48 << 10) cudaFuncSetAttribute({address},"
            " cudaFuncAttributeMaxDynamicSharedMemorySize, jitload_shared);"
            f" {kernel}<<<{grid},{block}, jitload_shared, jitload_stream>>>({', '.join(names)});"
            " return cudaGetLastError(); }"
        )


def symbol_of(kernel: str, arguments: tuple[str, ...]) -> str:
    """The name of a template's instance in a build."""
    return "__".join([kernel, *(re.sub(r"\W", "_", each.replace("-", "m")) for each in arguments)])


def template_parameters(template: str | None) -> list[tuple[str, str, str]]:
    """Kind, name and default of each: ("typename", "T", ""), ("int", "N", "4"). One that Python
    cannot give, such as a pack, has neither kind nor name."""
    parameters = []
    for parameter in filter(None, sources.split(template or "")):
        declared = re.fullmatch(r"([\w ]+?)\s+(\w+)\s*(?:=\s*(.*))?", parameter)
        parameters.append(
            (declared[1], declared[2], declared[3] or "") if declared else ("", "", "")
        )
    return parameters


def _replaced(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\b\w+\b", lambda word: values.get(word[0], word[0]), text)


def definitions(code: str) -> Iterator[Definition]:
    """The kernels that are defined in code without comments."""
    plain = blank(code)
    for word in re.finditer(r"\b__global__\b", plain):
        before = plain[max(plain.rfind(mark, 0, word.start()) for mark in ";{}") + 1 : word.start()]
        name = _NAME.match(plain, word.end())
        while name and name[1] in _QUALIFIERS:
            name = _NAME.match(plain, closing(plain, name.end() - 1) or len(plain))
        end = name and closing(plain, name.end() - 1)
        if not end or not re.match(r"\s*(?:noexcept\s*)?\{", plain[end:]):
            continue  # only declared here
        template = re.search(r"\btemplate\s*<(.*)>", before, re.DOTALL)
        yield Definition(
            name[1],
            tuple(sources.with_plain_types(parameters(code[name.end() : end - 1]), plain)),
            code.count("\n", 0, name.start(1)) + 1,
            _scope(plain, word.start()),
            " ".join(template[1].split()) if template else None,
        )


def parameters(text: str) -> list[str]:
    """The declarations between the parentheses of a kernel, without their defaults."""
    text = re.sub(r"\b__grid_constant__\b", "", text)  # only a kernel's parameter may have it
    declarations = (" ".join(each.partition("=")[0].split()) for each in sources.split(text))
    return [each for each in declarations if each not in ("", "void")]


def _scope(plain: str, position: int) -> str:
    """The named namespaces that are open at a position, as in "a::b::"."""
    scopes: list[str] = []
    for brace in re.finditer(r"\bnamespace\b([\w\s:]*)\{|[{}]", plain[:position]):
        if brace[0] == "}":
            scopes = scopes[:-1]
        else:
            name = re.sub(r"\binline\b|\s", "", brace[1] or "")
            scopes.append(f"{name}::" if name else "")
    return "".join(scopes)


def defined(unit: Unit) -> Iterator[Definition]:
    """The kernels that a source and its headers define, each at its own file and line."""
    for kernel in definitions(unit.text):
        path, line = unit.places[kernel.line - 1]
        yield replace(kernel, path=path, line=line)


def offered(
    units: Iterable[tuple[Unit, ...]],
    functions: Iterable[str],
    instances: Iterable[tuple[str, tuple[str, ...]]] = (),
) -> dict[str, dict]:
    """The entries in a build's manifest of the kernels that are callable, by their names.

    A template has the key "template", and no keys of a kernel that can be launched.

    units: those of each source, from `preprocessed`: a kernel has to be in all of them.
    functions: the extern "C" functions that they define.
    instances: templates, each with the arguments to compile it for.
    """
    units, functions = list(units), set(functions)
    kernels = dict.fromkeys(kernel for first, *_ in units for kernel in defined(first))
    certain = [set.intersection(*(set(defined(unit)) for unit in ways)) for ways in units]
    names = Counter(kernel.name for kernel in kernels)
    whole = "\n".join(blank(first.text) for first, *_ in units)
    free = {
        kernel.name: kernel
        for kernel in kernels
        if names[kernel.name] == 1
        and kernel.name not in functions
        and any(kernel in some for some in certain)
        and not (functions and is_launched(kernel.name, whole))
    }
    exports = {}
    for name, kernel in free.items():
        if kernel.is_offered_as_template():
            export = {"template": kernel.template, "parameters": list(kernel.parameters)}
            exports[name] = {**export, "returns": ERROR}
        elif kernel.obstacle() is None:
            exports[name] = kernel.export()
    made = [free[name].instance(arguments) for name, arguments in instances if name in free]
    return exports | {instance.symbol: instance.export() for instance in made}


def is_launched(name: str, plain: str) -> bool:
    """Whether code without comments and strings launches the kernel of this name."""
    launch = rf"\b{name}\s*(?:<[^;{{}}]*?>\s*)?<<\s*<|\bcudaLaunch\w*\s*\([^;]*\b{name}\b"
    return re.search(launch, plain) is not None


_HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}


def with_instances(kernels: Iterable[Definition], exports: dict) -> Iterator[Definition]:
    """Kernels, and after each template its instances in `exports`."""
    instances = [export["instance_of"] for export in exports.values() if "instance_of" in export]
    for kernel in kernels:
        yield kernel
        for name, *arguments in instances:
            if kernel.name == name and kernel.template is not None:
                yield kernel.instance(tuple(arguments))


def launchers(units: dict[Path, Unit], exports: dict) -> dict[Path, str]:
    """The text to compile after each source: the launchers of its kernels in `exports`.

    A header's kernel has its launcher after the first source that includes it.
    """
    wanted = {name for name, export in exports.items() if "kernel" in export}
    texts = {}
    for source, unit in units.items():
        lines = []
        for kernel in with_instances(defined(unit), exports):
            if kernel.symbol in wanted:
                wanted.remove(kernel.symbol)
                lines += [f"#include <{_HEADERS[it]}>" for it in kernel.arguments if it in _HEADERS]
                place = label(kernel.path).replace("\\", "\\\\").replace('"', '\\"')
                lines += [f'#line {kernel.line} "{place}"', kernel.launcher()]
        texts[source] = "\n".join(["", *lines, ""]) if lines else ""
    return texts


def explanations(files: dict[str, list[str]], exports: Iterable[str]) -> dict[str, str]:
    """Why definitions in the user's files cannot be called from Python: a sentence for each name.

    It has sentences for names in `exports`, too, for the case that the library lacks them.

    files: the lines of each file that was compiled, by its name.
    exports: the exports in the manifest of a build without a binding.
    """
    codes = {
        name: without_comments("\n".join(lines))
        for name, lines in files.items()
        if not Path(name).is_relative_to(label(LIBRARY))
    }

    def absent(name: str) -> str:
        return (
            f"{name} is in the source, but not in what was compiled of it: look at the macros, the"
            " #if and the unnamed or static scope around it"
        )

    sentences = {}
    for code in codes.values():
        for function in _FUNCTION.finditer(blank(code)):
            sentences[function[1]] = (
                f"write __global__ in place of __device__ before {function[1]} if it is a kernel"
                if "__device__" in function[0]
                else f"write __global__ before {function[1]} if it is a kernel, and"
                ' extern "C" if it is a function of the host'
            )
        for name, export in sources.exports(code, "c").items():
            why = obstacle(export["parameters"], export["returns"])
            sentences[name] = (
                f"Python cannot call the function {name}: {why}" if why else absent(name)
            )
    kernels = [(file, kernel) for file, code in codes.items() for kernel in definitions(code)]
    names = Counter(kernel.name for _, kernel in kernels)
    for file, kernel in kernels:
        why = kernel.obstacle()
        if names[kernel.name] > 1:
            why = "it is defined more than once"
        launching = (name for name, code in codes.items() if is_launched(kernel.name, blank(code)))
        if why:
            sentences[kernel.name] = (
                f"Python cannot launch the kernel {kernel.name}: {why}. Write a function behind it"
                f' that does, and call that: extern "C" void launch_{kernel.name}(...,'
                f" cudaStream_t stream) {{ {kernel.scope}{kernel.name}<<<blocks, threads, 0,"
                " stream>>>(...); }"
            )
        elif launcher := next(launching, None):
            sentences[kernel.name] = (
                f"{kernel.name} is a kernel that {launcher} launches itself: call the function that"
                " does, or take the launch out and give the grid and the block from Python"
            )
        else:
            sentences[kernel.name] = (
                f"whether the kernel {kernel.name} at {file}:{kernel.line} is compiled depends on"
                " the #if around it: take it out of there, or write a launcher beside it"
            )
    if "main" in sentences:
        sentences["main"] = (
            "main() is run as a program: by `%%cu --run` in a notebook, and else by"
            " `python -m jitload run FILE.cu`"
        )
    return sentences | {name: absent(name) for name in exports}
