"""Parts of CUDA that have their own headers here; a source that names one gets its header.

Every .cu compiles cuda_runtime.h, so that header holds only what most of them use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Patterns for code without comments and strings.
_HEADERS = [
    (
        r"\bcudaGraph(?!ics)[A-Z_]\w*|\bcudaStream(?:Begin|End)Capture\b"
        r"|\bcudaStreamGetCaptureInfo\w*|\bcuda(?:Kernel|Host|MemAlloc)NodeParams\b|\bcudaMemsetParams\b"
        r"|\bcudaThreadExchangeStreamCaptureMode\b|\bcudaDevice(?:[GS]et)?GraphMem\w+",
        "graphs.h",
    ),
    (
        r"\bcuda(?:AccessP|SyncPolicy|Synchronization|StreamAttr)\w+|\bcudaCtxResetPersisting\w+"
        r"|\bcudaStream[GS]etAttribute\b|\bCUlaunchAttribute\w*",
        "stream_attributes.h",
    ),
    (r"\bcudaLaunch(?:Cooperative)?Kernel\b", "kernel_address.h"),
    (
        r"\bcudaLaunch(?:KernelEx\w*|Config_t|Attribute\w*)\b|\bcudaOccupancyMax\w*Cluster\w*",
        "launch_ex.h",
    ),
    (r"\b__cluster[A-Z_]\w*\s*\(", "cluster.h"),
    (r"\b__nv_atomic_\w+", "nv_atomics.h"),
    (
        r"\bCUtensorMap\w*|\bcuTensorMap\w+|\bcudaGetDriverEntryPoint\w*|\bcuGetProcAddress\b",
        "tensor_map_encode.h",
    ),
    (r"\bcuda(?:MemPool|MallocFromPool|DeviceGet(?:Default)?MemPool|DeviceSetMemPool)", "pools.h"),
    (r"\bcudaIpc[A-Z]\w*", "virtual_memory.h"),
    (
        r"\bcuda(?:Texture|Surface|Resource|Address|Filter|Read|Boundary)\w*|\btex[123C]\w*"
        r"|\bsurf[123C]\w*|\bcudaMalloc(?:3D)?Array\b|\bcudaFreeArray\b|\bcudaArrayGetInfo\b"
        r"|\bcudaMemcpy\w*Array\w*|\bcuda(?:Create|Get)Channel\w*"
        r"|\bcuda(?:Create|Destroy|Get)(?:Texture|Surface)\w*",
        "textures.h",
    ),
    (
        r"\b__(?:[fd](?:add|sub|mul|div|rcp|sqrt)|fma|fmaf|fmaf_ieee"
        r"|(?:double|u?int|u?ll)2(?:float|double))_(?:r[duz]\b|\s*##)|##\s*_r[duz]\b",
        "rounding.h",
    ),
    (r"\b__v(?:[a-z]+[24]\b|i(?:max|min|addm|bm)\w+|\s*##)", "simd.h"),
    (
        r"\b(?:rcbrtf?|erfc(?:x|inv)f?|erfinvf?|normcdf(?:inv)?f?|cyl_bessel_i[01]f?|rhypotf?"
        r"|r?norm[34]df?|(?:sin|cos|sincos)pif?)\b|\b(?:r?normf?|sincos)\s*\(",
        "special.h",
    ),
]
# Uses of a kernel's address that must keep the kernel's type.
_BY_ADDRESS = re.compile(
    r"\bcudaLaunch(?:Cooperative)?Kernel\b|\bcudaLaunchKernelExC\b|\bcuda\w*KernelNode\w*"
)
_NAME = r"(?P<name>(?:&\s*)?[A-Za-z_]\w*(?:\s*::\s*\w+)*(?:\s*<(?:[^;(){}]|\([^;(){}]*\))*>)?)"
_CAST = re.compile(
    r"\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)\s*" + _NAME + r"(?=\s*[,;:)}])"
    r"|\breinterpret_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>\s*\(\s*"
    + _NAME.replace("name", "operand")
    + r"\s*\)"
)


# Headers that CUB, Thrust and libcu++ include under nvcc, and that people then rely on.
_BROUGHT = [
    (r"\bthrust\s*::\s*(?:device|host|seq)\b", "thrust/execution_policy.h"),
    (r"\bstd\s*::\s*array\b", "array"),
    (r"\bstd\s*::\s*atomic\w*", "atomic"),
    (r"\bstd\s*::\s*chrono\b", "chrono"),
    (r"\bstd\s*::\s*(?:cout|cerr|clog|cin|endl)\b", "iostream"),
    (r"\bstd\s*::\s*numeric_limits\b", "limits"),
    (r"\bstd\s*::\s*map\b", "map"),
    (r"\bstd\s*::\s*(?:unique_ptr|shared_ptr|make_unique|make_shared)\b", "memory"),
    (r"\bstd\s*::\s*(?:mutex|lock_guard|unique_lock)\b", "mutex"),
    (r"\bstd\s*::\s*optional\b", "optional"),
    (r"\bstd\s*::\s*(?:runtime_error|logic_error|invalid_argument|out_of_range)\b", "stdexcept"),
    (r"\bstd\s*::\s*(?:string|to_string)\b", "string"),
    (r"\bstd\s*::\s*(?:tuple|make_tuple|tie)\b", "tuple"),
]
_BRINGS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?P<library>cub|thrust|cuda)/", re.MULTILINE)


def brought(code: str) -> list[str]:
    """The headers that this code's includes of CUB, Thrust and libcu++ stand for."""
    libraries = set(_BRINGS.findall(code))
    return [
        header
        for pattern, header in _BROUGHT
        if libraries
        and (not header.startswith("thrust/") or "thrust" in libraries)
        and re.search(pattern, code)
    ]


def headers(code: str) -> list[str]:
    """The simulator's headers that this code needs besides cuda_runtime.h, by their names."""
    return [f"simulator/{header}" for pattern, header in _HEADERS if re.search(pattern, code)]


def launches_by_address(code: str) -> bool:
    """Whether a file launches kernels by their addresses; they may be another file's."""
    return _BY_ADDRESS.search(code) is not None


def kernel_addresses(code: str) -> Iterator[tuple[int, int, str]]:
    """Edits (from, to, replacement) that keep a kernel's type where its name is cast to `void*`.

        params.func = (void*)scale<float>;
        params.func = SIMULATOR_ADDRESS(scale<float>);

    For any other operand the macro is the cast itself.
    """
    for match in _CAST.finditer(code):
        yield *match.span(), f"SIMULATOR_ADDRESS({match['name'] or match['operand']})"
