"""NVIDIA's libraries that the simulator lacks, recognized by the compiler's messages.

Only the preprocessor knows whether a header is included: many #includes depend on macros.
"""

from __future__ import annotations

import re

HINT = (
    "of NVIDIA's libraries it has cuBLAS, cuBLASLt and cuRAND: call a routine of PyTorch from"
    " Python instead, between two kernels, or take a GPU"
)
_OF_HEADERS = {
    r"cublas\.h": "API of cuBLAS from before CUDA 4, cublas.h, but the one of cublas_v2.h",
    r"cublasXt\.h": "cublasXt",
    r"cudnn\w*\.h": "cuDNN",
    r"cufft\w*\.h": "cuFFT",
    r"cusolver\w*\.h": "cuSOLVER",
    r"cusparse\w*\.h": "cuSPARSE",
    r"(?:cute|cutlass)/[\w/]*\.\w+": "CUTLASS",
    r"nccl\.h": "NCCL",
    r"npp\w*\.h": "NPP",
    r"nvjpeg\.h": "nvJPEG",
    r"nvml\.h": "NVML",
    r"nvrtc\.h": "NVRTC",
    r"nvshmem\w*\.h": "NVSHMEM",
}


def missing(message: str) -> str | None:
    """The header that a compiler did not find, if the message says so."""
    found = re.search(r"([\w/.-]+)'?:? (?:No such file|file not found)", message)
    return found[1] if found else None


def absent(message: str) -> str | None:
    """The library whose header a compiler did not find, if the message says so."""
    found = missing(message) or ""
    return next((name for header, name in _OF_HEADERS.items() if re.fullmatch(header, found)), None)
