"""What the library compiled from a submission may not contain.

It reveals what a source can hide: calls under other names, state kept between calls, and code that
runs on loading.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jitload
from lab.judge.gate import WITH_TENSORS, is_op, takes_tensors

# Imports that an op does not need. PyTorch's headers use too much of the C++ library for a list of
# allowed names; but they need neither PyTorch's own ops nor files nor threads.
_NOT_OF_OPS = re.compile(
    r"^((aoti_)?torch_(call_\w+|\w*(aten_|cpu_|dispatcher|cuda_(?!stream)|get_current_\w*handle)\w*)"
    r"|(at|c10|torch)::.*|(std|__gnu_cxx)::.*(\bthread|fstream|filebuf|chrono|filesystem"
    r"|random_device|set_(terminate|unexpected|new_handler))\b.*)$"
)
# C functions allowed for an op, in addition to those for kernels: error texts, locks, exceptions,
# and those with which PyTorch's headers wait and abort.
_C_OF_OPS = re.compile(
    r"^(str(len|n?cmp|r?chr|str|to[a-z]+)|mem\w+|v?snprintf|localtime(_r)?|time|syscall|abort|bcmp"
    r"|__v?snprintf_chk|__libc_single_threaded|__errno_location|__tls_get_addr|__assert_fail"
    r"|__cxa_\w+|_Unwind_Resume(_or_Rethrow)?|__dynamic_cast|(aoti_)?torch_\w+"
    r"|pthread_(mutex|once|rwlock|cond|self)\w*|__pthread_key_create)$"
)
# Imports that a library of kernels needs.
_IMPORTS = re.compile(
    r"^(simulator(::|_).*|(__)?cuda[A-Z]\w+|cuTensorMap\w+|__gmon_start__"
    r"|__cxa_(finalize|atexit|guard_\w+|throw_bad_array_new_length)"
    r"|_ITM_\w+|mem(cpy|set|move|cmp)(_chk)?|__mem\w+_chk|(__wrap_)?__stack_chk_fail"
    r"|operator (new|delete)(\[\])?\(.*|__wrap_(malloc|free|calloc|mem(cpy|set|move)|putchar|puts)"
    r"|__wrap_(__)?printf(_chk)?"
    r"|__(add|sub|mul|div|trunc|extend|float|fix)\w+[fi]\w*|__gxx_personality_v0|_Unwind_Resume"
    r"|std::__throw_\w+\(.*|std::terminate\(\)"
    r"|(f?abs|a?(sin|cos|tan)h?|atan2|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|r?hypot"
    r"|erf|erfc|[lt]gamma|floor|ceil|round|trunc|l?l?rint|nearbyint|l?l?round|fmod|remainder|fma|fmin"
    r"|fmax|fdim|ldexp|frexp|modf|copysign|scalbn?|logb|ilogb|nextafter|sincos|j[01n]|y[01n]|nan)[fl]?)$"
)


# PyTorch functions that an op with at::Tensor needs: tensors, registration, errors. Functions that
# compute are in at::_ops, or are found by the dispatcher.
_OF_TENSORS = re.compile(
    r"(at::(TensorBase::|_ops::empty(_memory_format|_like)::|cuda::get(Current)?DeviceProperties)"
    r"|c10::(?!Dispatcher|\w*OperatorHandle|impl::OperatorEntry)"
    r"|torch::(Library::|CppFunction::|jit::parse|headeronly::|detail::)|caffe2::TypeMeta::).*"
)
_OF_PYTORCH = re.compile(r"(?:^|[\s*&])((?:at|c10|torch|caffe2)::[^(]*)")


def library(path: Path, text: str) -> list[dict]:
    """Findings about a library for the CPU, in the form of lab.judge.gate.source."""
    op = is_op(text)
    found = asked(path, text)
    sections = _sections(path)
    if hit := re.search(r"\.init_array\s+\w+\s+\w+\s+\w+\s+(\w+)", sections):
        count = int(hit[1], 16) // 8
        if count > (2 if op else 1):  # one by g++; registering an op adds one
            found.append(_of_library("constructors", "it runs code when it is loaded"))
    found += [_of_library("state", f"{name}: kept from call to call") for name in _kept(path, text)]
    code = _said(["objdump", "-d", "--no-show-raw-insn", str(path)])
    if hit := _INSTRUCTION.search(code):
        found.append(_of_library("assembly", f"its machine code has {hit[1]}"))
    if hit := next(filter(_holds_one, _NUMBER.finditer(code)), None):
        found.append(_of_library("assembly", f"a number in its machine code holds one: {hit[0]}"))
    return found


_INSTRUCTION = re.compile(r"\t(syscall|sysenter|rdtscp?|rdpmc|rdrand|rdseed|int\s+\$0x80)\b")
_NUMBER = re.compile(r"\$0x([0-9a-f]{4,16})\b|\b0x([0-9a-f]{4,8})\((?!%rip)")


def _holds_one(number: re.Match) -> bool:
    """Whether a number in machine code contains the bytes of syscall, sysenter or int 0x80: a jump
    into the middle of its instruction would execute them."""
    digits = number[1] or number[2]
    data = bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))[::-1]
    return any(it in data for it in (b"\x0f\x05", b"\x0f\x34", b"\xcd\x80"))


# State of the compiler and the simulator; then that of PyTorch's headers, which only an op has.
_OWN_STATE = re.compile(
    r"(guard variable for )?simulator::|completed\.\d+$|DW\.ref\."
    r"|(blockIdx|threadIdx|blockDim|gridDim|warpSize)$"
)
_STATE_OF_OPS = re.compile(
    r"(guard variable for )?(c10|at|torch)::|std::__ioinit$|\w*TORCH_LIBRARY\w*_init_"
)
# Sections that are written only by the loader.
_RELOCATED = re.compile(r"\.(init_array|fini_array|ctors|dtors|data\.rel\.ro|dynamic|got(\.plt)?)$")


def _kept(path: Path, text: str) -> list[str]:
    """Writable variables of a library that are neither __constant__ nor __shared__."""
    blank, op = jitload.blank(text), is_op(text)
    constant, shared = (
        {it.name for it in jitload.declared(blank, kind)} for kind in ("__constant__", "__shared__")
    )
    sections = re.findall(r"\] (\S+) .* ([A-Z]+) +\d+ +\d+ +\d+$", _sections(path), re.M)
    written = {name: flags for name, flags in sections if "W" in flags}
    found = []
    for line in _said(["objdump", "-tC", str(path)]).splitlines():
        symbol, _, rest = line.partition("\t")
        section = symbol.rpartition(" ")[2]
        if section not in written or _RELOCATED.match(section):
            continue
        size, name = re.match(r"(\w+)\s+(?:\.hidden )?(.*)", rest).groups()
        if not int(size, 16):  # a label of the linker
            continue
        # In the simulator each thread has its block's shared variables.
        declared = shared if "T" in written[section] else constant
        own = _OWN_STATE.match(name) or (op and _STATE_OF_OPS.match(name))
        if not own and name.rpartition("::")[2] not in declared:
            found.append(name)
    return found


def asked(path: Path, text: str) -> list[dict]:
    """Forbidden imports of a library from the system and from PyTorch.

    A GPU library may import more than the CPU one: a source can tell the compilers apart.
    """
    op, tensors = is_op(text), takes_tensors(text)

    def refused(name: str) -> bool:
        if tensors and _OF_PYTORCH.search(name):
            return False  # reported by ops_called
        if not op or (name.isidentifier() and not _C_OF_OPS.match(name)):
            return not _IMPORTS.match(name)
        return bool(_NOT_OF_OPS.match(name))

    names = filter(refused, _undefined(path))
    return [_of_library("imports", f"it calls {it}") for it in names] + ops_called(path, text)


def ops_called(path: Path, text: str) -> list[dict]:
    """PyTorch ops that a library with at::Tensor calls, with the lines that may call them."""
    found = []
    for name in _undefined(path) if takes_tensors(text) else ():
        if (called := computes(name)) is None:
            continue
        op = _of_library("PyTorch", f"it calls {called}: {WITH_TENSORS[1]}")
        words = called.removeprefix("at::_ops::").partition("::")[0].split("_")
        for count in range(len(words), 0, -1):  # mul_Tensor is called as mul
            hit = re.search(rf"\b{'_'.join(words[:count])}_?\s*\(", jitload.blank(text))
            if hit and words[0]:
                op["line"] = text.count("\n", 0, hit.start()) + 1
                break
        found.append(op)
    return found


def computes(name: str) -> str | None:
    """The PyTorch function behind a demangled name, if it may compute; else None."""
    hit = _OF_PYTORCH.search(name)
    if not hit or name.startswith(("vtable ", "typeinfo ", "VTT ")) or _OF_TENSORS.match(hit[1]):
        return None
    return hit[1]


def _undefined(path: Path) -> list[str]:
    """The undefined symbols of a library, demangled."""
    lines = _said(["nm", "-DC", "--undefined-only", str(path)]).splitlines()
    names = (it.strip().partition(" ")[2].partition("@")[0].strip() for it in lines)
    return [it for it in names if it]


def _sections(path: Path) -> str:
    return _said(["readelf", "-SW", str(path)])


def _of_library(kind: str, message: str) -> dict:
    return {"stage": "gate", "kind": kind, "line": 0, "message": message}


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
