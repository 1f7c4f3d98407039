"""`jitload.load_inline`: sources as strings, with the arguments of PyTorch's load_inline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from jitloader import tracebacks
from jitloader.arguments import recipe_of
from jitloader.cache import Cache, made
from jitloader.handle import Kernel, handle_for
from toolchain.notes import digest_of

_CPP = ("#include <torch/extension.h>",)
_CUDA = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")


def load_inline(
    name: str,
    cpp_sources: str | Iterable[str] = (),
    cuda_sources: str | Iterable[str] = (),
    functions: str | Iterable[str] | Mapping[str, str] | None = None,
    extra_cflags: Iterable[str] = (),
    extra_cuda_cflags: Iterable[str] = (),
    extra_include_paths: str | Iterable[str | os.PathLike[str]] = (),
    *,
    no_implicit_headers: bool = False,
    target: str | None = None,
    **others: object,
) -> Kernel:
    """Compile sources that are strings, and open them: like torch.utils.cpp_extension.load_inline,
    but also without a GPU.

        kernel = jitload.load_inline("mine", cpp_sources="torch::Tensor twice(torch::Tensor x);",
                                     cuda_sources=CUDA, functions=["twice"])
        kernel = jitload.load_inline("mine", cuda_sources=CUDA)    # launched as mine.add[1, 32](x)

    Args:
        name: of the kernel.
        cpp_sources, cuda_sources: the texts.
        functions: the functions that Python is to call, bound by pybind11 as PyTorch does it; with
            a dict, with their docstrings. None: what the texts bind themselves, or else their
            kernels and extern "C" functions, as with `load`.
        extra_cflags, extra_cuda_cflags: for the compilers; extra_include_paths: folders of headers.
        no_implicit_headers: do not #include PyTorch's headers above the texts. They are not
            included either if there are no C++ sources and no functions.
        target: "cuda" or "cpu"; by default `default_target()`.
        others: PyTorch's further options, such as verbose and with_cuda, which have no effect here.

    Returns:
        The kernel's handle, as `load` does.

    Raises: as `load` does.
    """
    cpp, cuda = _texts(cpp_sources), _texts(cuda_sources)
    functions = [functions] if isinstance(functions, str) else functions
    if functions is not None:
        bound = functions if isinstance(functions, Mapping) else {it: it for it in functions}
        lines = [
            f'm.def("{function}", torch::wrap_pybind_function({function}), {_quoted(text)});'
            for function, text in bound.items()
        ]
        cpp.append("\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]))
    if cpp and not no_implicit_headers:
        cpp, cuda = [*_CPP, *cpp], [*_CUDA, *cuda] if cuda else []
    files = {f"{name}.cpp": cpp, f"{name}.cu": cuda}
    texts = {file: "\n".join([*parts, ""]) for file, parts in files.items() if parts}
    if not texts:
        raise TypeError("load_inline wants cpp_sources or cuda_sources")
    with tracebacks.hidden():
        folder = made(made(Cache.here().own / "inline") / digest_of(*texts, *texts.values())[:16])
        for file, text in texts.items():
            path = folder / file
            if not path.is_file() or path.read_text() != text:
                path.write_text(text)
        include = extra_include_paths
        include = [include] if isinstance(include, str | os.PathLike) else include
        flags = [*(extra_cflags or ()), *(extra_cuda_cflags or ())]
        paths = [folder / file for file in texts]
        return handle_for(recipe_of(paths, name, target, flags, include or ()))


def _texts(sources: str | Iterable[str]) -> list[str]:
    return [sources] if isinstance(sources, str) else list(sources or ())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
