"""What a submission's source and library may not contain.

The process that runs it has neither the truth nor a clock that counts, and no network or files: the
gate says early, and with a line, what would be tried there.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jitload

HEADERS = re.compile(
    r"^(cuda\w*|mma|cooperative_groups(/\w+)*|vector_types|curand_kernel|cub/.+|cuda/.+|math_constants"
    r"|c?math|c?stdint|c?stddef|c?float|c?limits|type_traits|utility|algorithm|array|limits"
    r"|binding|torch/csrc/stable/(library|tensor)|torch/headeronly/.+"
    r"|torch/csrc/inductor/aoti_torch/c/shim)"
    r"(\.h|\.hpp|\.cuh)?$"
)
# Besides, of an op that takes at::Tensor.
_HEADERS_OF_TENSORS = re.compile(
    r"^(torch/(library|types)|c10/(core|cuda|util)/\w+"
    r"|ATen/(ATen|Tensor|Dispatch|ScalarType|AccumulateType|OpMathType|core/\w+"
    r"|cuda/(CUDAContext|CUDAContextLight|Exceptions)))(\.h|\.cuh)$"
)
# By kind: names that a kernel may have for something else, and count where they are called; names
# that nobody has, and count where they stand; why.
_CALLS = {
    "processes": (
        "system clone",
        "popen fork vfork posix_spawn syscall execl execle execlp execv execve execvp execvpe",
        "it starts a process",
    ),
    "libraries": ("", "dlopen dlsym dladdr dl_iterate_phdr", "it looks into libraries"),
    "files": (
        "open read write connect send recv",
        "openat fopen freopen pread pwrite mmap mprotect munmap ptrace socket process_vm_readv"
        " process_vm_writev dup2 dup3 pipe2 fcntl fileno fdopen",
        "it reaches for files, memory or network",
    ),
    "clocks": (
        "clock time sleep",
        "clock_gettime gettimeofday usleep nanosleep clock64 rdtsc __rdtsc __rdtscp _rdtsc"
        " __builtin_ia32_rdtsc __nanosleep __globaltimer",
        "it asks for the time: a submission may not tell rounds apart",
    ),
    "process control": (
        "signal raise kill exit abort",
        "atexit sigaction setjmp longjmp _exit _Exit quick_exit prctl seccomp",
        "it steers the process",
    ),
    "environment": ("", "getenv setenv putenv secure_getenv", "it reads the environment"),
}
_NAMES = {
    "attributes": (r"__attribute__|\[\[\s*gnu\s*::|__declspec", "it may run code when loaded"),
    "clocks": (r"\bstd\s*::\s*chrono\b|%globaltimer|%clock", "it asks for the time"),
    "streams": (
        r"\bcudaEvent\w*|\bcudaStreamCreate\w*|\bcudaLaunchHostFunc\b|\bcudaStreamAddCallback\b"
        r"|\bcudaStreamPerThread\b|\bcudaStreamLegacy\b|\bcudaGraph\w*"
        r"|\bcu(?:Stream|Event|Graph|Launch)\w+",
        "a stream, an event or a graph of its own",
    ),
    "memory": (
        r"\bcudaIpc\w*|\bcudaHostRegister\b|\bcuMem\w+|\bcudaProfiler\w*|\bcudaDeviceReset\b"
        r"|\bcudaPointerGetAttributes\b|\bcudaMallocManaged\b",
        "it reaches for memory that is not its own",
    ),
    "process control": (
        r"\bstd\s*::\s*(?:thread|jthread|async|filesystem|[io]?fstream|atexit)\b|\bpthread_\w+",
        "it steers the process",
    ),
    "environment": (r"\benviron\b", "it reads the environment"),
    "libraries": (
        r"\bcuda?Get(?:DriverEntryPoint|ProcAddress|ExportTable|FuncBySymbol)\w*"
        r"|\bcu(?:da)?(?:Module|Library)(?:Load|Get)\w*",
        "it looks into libraries",
    ),
    "checker": (
        r"\b(?:SIMULATOR|PLAYGROUND)\w*|\b__SANITIZE_\w+|\b__has_feature\b"
        r"|\b__(?:TIME|DATE|TIMESTAMP)__",
        "it tells one build from another, as the checker's",
    ),
    "memory of the process": (
        r"\b_IO_list_all\b|\b__builtin_(?:frame|return)_address\b|/proc/",
        "it looks for memory that it was not given",
    ),
    "PyTorch": (
        r"\bPy[A-Z_]\w+|\bpybind11\b|\bat\s*::|\bc10\s*::|\btorch_call_\w+"
        r"|\btorch\s*::(?!\s*(?:stable\s*::\s*Tensor|headeronly\s*::\s*ScalarType)\b)"
        r"|\baoti_torch(?!_get_current_cuda_stream\b)\w+",
        "a submission is CUDA C++ alone; an op of it has tensors, and no other ops",
    ),
    "directives": (
        r"^\s*#\s*(?:pragma\s+(?:init|fini|redefine_extname|weak)|embed|line\b|\d)|\.incbin"
        r"|\b_Pragma\b",
        "it reads or loads something, or names other lines than its own",
    ),
}
# The rule "PyTorch" for an op that takes at::Tensor: these names call no op.
_WITH_TENSORS = (
    r"\bPy[A-Z_]\w+|\bpybind11\b|\btorch_call_\w+|\baoti_torch\w+|\b(?:at|c10|torch)\s*::\s*(?!(?:"
    r"Tensor|TensorBase|TensorOptions|Library|Half|BFloat16|ScalarType|DeviceType|Device|k[A-Z]\w*"
    r"|ArrayRef|IntArrayRef|optional|nullopt|MemoryFormat|RestrictPtrTraits|PackedTensorAccessor\w*"
    r"|acc_type|opmath_type|empty|empty_like|device_of|DeviceGuard|OptionalDeviceGuard"
    r"|headeronly\s*::\s*ScalarType|cuda\s*::\s*(?:getCurrentCUDAStream|CUDAStream|CUDAGuard"
    r"|OptionalCUDAGuard|getCurrentDeviceProperties))\b)\w+",
    "it may take tensors apart, and call no op of PyTorch's",
)
_RULES = [
    (rf"\b(?:{'|'.join(called.split())})\s*\(", kind, why)
    for kind, (called, _, why) in _CALLS.items()
    if called
]
_RULES += [
    (rf"\b(?:{'|'.join(named.split())})\b", kind, why) for kind, (_, named, why) in _CALLS.items()
]
_RULES += [(pattern, kind, why) for kind, (pattern, why) in _NAMES.items()]
_STATIC = re.compile(
    r"(?:^|(?<=[{};)]))[ \t]*(?:(?:static|thread_local|inline)\s+)+"
    r"(?!(?:__device__|__global__|__host__|inline|__forceinline__)\b)"
    r"[^(){};=]*(?:(?:=|\{)[^;]*)?;"
    r"|\bmutable\s+\w[^;(){}]*;",
    re.M,
)
_NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace\b[\w\s:]*$")
_DECLARES = re.compile(
    r"(?:using|typedef|namespace|template|struct|class|enum|extern|static_assert)\b"
)
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b[\s\w]*\(")
# Of PTX nothing looks so: instructions, registers, numbers and bytes of a processor.
_X86 = re.compile(
    r"\b(?:syscall|sysenter|rdtscp?|cpuid|int\s+\$?0x80|svc|jmp|push|pop|lea)\b|\$(?:0x)?\d+"
    r"|%%[re]?[abcd]x\b|%%r(?:\d+|[sb]p|[sd]i)\b"
    r"|\.(?:byte|word|short|int|long|quad|octa|asci[iz]|string|section|globl|text|data)\b"
)
# C++'s and PyTorch's own headers wait by system calls, tell the time, and end a process by abort().
_OF_THE_SYSTEM = [
    name
    for called, named, _ in _CALLS.values()
    for name in f"{called} {named}".split()
    if name not in ("syscall", "time", "abort")
]
# What an op has no use for. PyTorch's headers bring in much of the C++ library, which may be linked
# into it, so that what it needs cannot be listed; but PyTorch's own ops are none of it.
_NOT_OF_OPS = re.compile(
    r"^((aoti_)?torch_(call_\w+|\w*(aten_|cpu_|dispatcher|cuda_(?!stream)|get_current_\w*handle)\w*)"
    r"|Py[A-Z_]\w*|(at|c10|torch)::.*|std::(thread|basic_\w?fstream|chrono|filesystem)\b.*"
    rf"|(__wrap_)?({'|'.join(_OF_THE_SYSTEM)}|pipe))$"
)
# What a library of kernels needs from elsewhere.
_IMPORTS = re.compile(
    r"^(simulator::.*|__cxa_(finalize|atexit|guard_\w+|throw_bad_array_new_length)|__gmon_start__"
    r"|_ITM_\w+|mem(cpy|set|move|cmp)(_chk)?|__mem\w+_chk|__stack_chk_fail"
    r"|operator (new|delete)(\[\])?\(.*|__wrap_(malloc|free|printf|memcpy|memset|memmove|calloc)"
    r"|__(add|sub|mul|div|trunc|extend|float|fix)\w+[fi]\w*|__gxx_personality_v0|_Unwind_Resume"
    r"|std::__throw_\w+\(.*|std::terminate\(\)"
    r"|(f?abs|a?(sin|cos|tan)h?|atan2|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|r?hypot"
    r"|erf|erfc|[lt]gamma|floor|ceil|round|trunc|l?l?rint|nearbyint|l?l?round|fmod|remainder|fma|fmin"
    r"|fmax|fdim|ldexp|frexp|modf|copysign|scalbn?|logb|ilogb|nextafter|sincos|j[01n]|y[01n]|nan)[fl]?)$"
)


# What an op that takes at::Tensor needs of PyTorch: tensors, registration, errors. Whatever
# computes is an at::_ops, or found by the dispatcher.
_OF_TENSORS = re.compile(
    r"(at::(TensorBase::|_ops::empty(_memory_format|_like)::|cuda::get(Current)?DeviceProperties)"
    r"|c10::(?!Dispatcher|\w*OperatorHandle|impl::OperatorEntry)"
    r"|torch::(Library::|CppFunction::|jit::parse|headeronly::|detail::)|caffe2::TypeMeta::).*"
)
_OF_PYTORCH = re.compile(r"(?:^|[\s*&])((?:at|c10|torch|caffe2)::[^(]*)")
_OP = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY\s*\(")
_TAKES_TENSORS = re.compile(r"\bTORCH_LIBRARY\s*\(")


def is_op(text: str) -> bool:
    """Whether a source defines an op of PyTorch's: of its stable ABI, or of at::Tensor."""
    return bool(_OP.search(jitload.blank(text)))


def takes_tensors(text: str) -> bool:
    """Whether a source defines an op of at::Tensor."""
    return bool(_TAKES_TENSORS.search(jitload.blank(text)))


def source(path: Path) -> list[dict]:
    """Findings, each with its kind, line and message."""
    text = path.read_text(errors="replace")
    joined = re.sub(r"\\\r?\n", "  ", text)  # a name may not hide behind a continued line
    code = jitload.without_comments(text)
    blank = jitload.blank(code)
    tensors = takes_tensors(text)
    found = []
    for pattern, kind, why in _RULES:
        if tensors and kind == "PyTorch":
            pattern, why = _WITH_TENSORS
        whole = code if kind in ("clocks", "directives", "memory of the process") else blank
        for hit in re.finditer(pattern, whole, re.M):
            if _is_own(hit[0], blank):
                continue
            found.append(_finding(kind, text, hit.start(), f"{hit[0].strip()}: {why}"))
        whole = jitload.blank(joined)
        hits = (it for it in re.finditer(pattern, whole, re.M) if not _is_own(it[0], whole))
        if not any(it["kind"] == kind for it in found) and any(hits):
            found.append(_finding(kind, text, 0, f"{why}, behind a continued line"))
    for hit in re.finditer(r"^\s*#\s*include\s*(?:[<\"]([^>\"]*)[>\"])?(.*)$", code, re.M):
        known = hit[1] is not None and (
            HEADERS.match(hit[1]) or (tensors and _HEADERS_OF_TENSORS.match(hit[1]))
        )
        if not known:
            what = hit[1] if hit[1] is not None else hit[2].strip()
            found.append(
                _finding(
                    "headers",
                    text,
                    hit.start(),
                    f"#include of {what}: not among those that a kernel needs"
                    + ("; torch/library.h has what an op needs" if "torch/" in what else ""),
                )
            )
    if hit := re.search(r"##|%:%:", blank):
        found.append(_finding("names", text, hit.start(), "## makes names that cannot be read"))
    for hit in _ASM.finditer(blank):
        if x86 := _X86.search(code[hit.end() : jitload.closing(blank, hit.end() - 1)]):
            found.append(
                _finding("assembly", text, hit.start(), f"assembly for the host: {x86[0]}")
            )
    if hit := re.search(r"\)\s*(?:asm|__asm__|__asm)\s*\(", blank):
        found.append(_finding("names", text, hit.start(), "a function by another one's name"))
    for hit in _STATIC.finditer(blank):
        if _is_fixed(hit[0].partition("=")[0]):
            continue
        found.append(
            _finding(
                "state",
                text,
                hit.end() - 1,
                f"{' '.join(hit[0].split())[:60]}: kept from call to call",
            )
        )
    found += _globals(text, blank)
    return sorted(found, key=lambda it: it["line"])


def _is_own(call: str, blank: str) -> bool:
    """Whether a call is of a function that the source defines: many have a read() or a write()."""
    name = re.match(r"(\w+)\s*\($", call)
    head = rf"\b{name[1]}\s*\([^;{{}}]*\)\s*(?:const\s*)?\{{" if name else "(?!)"
    return bool(re.search(head, blank))


def _globals(text: str, blank: str) -> list[dict]:
    """Variables of the host or of the device outside of every function, that are not const."""
    found, depth, begin = [], 0, 0
    for i, letter in enumerate(blank):
        if letter == "{" and depth == 0 and _NAMESPACE.search(blank[begin:i]):
            begin = i + 1  # what is in it is outside of functions, too
        elif letter == "}" and depth == 0:
            begin = i + 1
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            begin = i + 1 if depth == 0 else begin
        elif letter == ";" and depth == 0:
            said = re.sub(r"^\s*#.*$", "", blank[begin:i], flags=re.M)
            at = i
            begin = i + 1
            words = " ".join(said.split())
            if not words or "(" in words.partition("=")[0]:
                continue
            if _DECLARES.match(words) or _is_fixed(words.partition("=")[0]):
                continue
            found.append(_finding("state", text, at, f"{words[:60]}: kept from call to call"))
    return found


def _is_fixed(declared: str) -> bool:
    """Whether a variable cannot change: it is const itself, and not what it points to."""
    if re.search(r"\b(?:constexpr|__constant__)\b", declared):
        return True
    return bool(re.search(r"\bconst\b", declared[declared.rfind("*") + 1 :]))


def _finding(kind: str, text: str, at: int, message: str) -> dict:
    return {"stage": "gate", "kind": kind, "line": text.count("\n", 0, at) + 1, "message": message}


def library(path: Path, text: str) -> list[dict]:
    """The same of a library that was built of a source: what it asks of others, what runs when it
    is loaded."""
    op = is_op(text)

    def refused(name: str) -> bool:
        if takes_tensors(text) and _OF_PYTORCH.search(name):
            return False  # ops_called tells
        return bool(_NOT_OF_OPS.match(name)) if op else not _IMPORTS.match(name)

    names = filter(refused, _undefined(path))
    found = [_of_library("imports", f"it calls {name}") for name in names]
    found += ops_called(path, text)
    sections = _said(["readelf", "-SW", str(path)])
    if hit := re.search(r"\.init_array\s+\w+\s+\w+\s+\w+\s+(\w+)", sections):
        count = int(hit[1], 16) // 8
        if count > 1 and not op:  # an op is registered by one
            found.append(_of_library("constructors", "it runs code when it is loaded"))
    code = _said(["objdump", "-d", "--no-show-raw-insn", str(path)])
    if hit := re.search(r"\t(syscall|sysenter|rdtscp?|int\s+\$0x80)\b", code):
        found.append(_of_library("assembly", f"its machine code has {hit[1]}"))
    return found


def ops_called(path: Path, text: str) -> list[dict]:
    """What a library that takes at::Tensor has PyTorch compute, with the lines that may call it."""
    found = []
    for name in _undefined(path) if takes_tensors(text) else ():
        if (called := computes(name)) is None:
            continue
        op = _of_library("PyTorch", f"it calls {called}: {_WITH_TENSORS[1]}")
        words = called.removeprefix("at::_ops::").partition("::")[0].split("_")
        for count in range(len(words), 0, -1):  # mul_Tensor is mul
            hit = re.search(rf"\b{'_'.join(words[:count])}_?\s*\(", jitload.blank(text))
            if hit and words[0]:
                op["line"] = text.count("\n", 0, hit.start()) + 1
                break
        found.append(op)
    return found


def computes(name: str) -> str | None:
    """The function of PyTorch's that a demangled name stands for, where it may compute."""
    hit = _OF_PYTORCH.search(name)
    if not hit or name.startswith(("vtable ", "typeinfo ", "VTT ")) or _OF_TENSORS.match(hit[1]):
        return None
    return hit[1]


def _undefined(path: Path) -> list[str]:
    """What a library asks of others, as C++ names it."""
    lines = _said(["nm", "-DC", "--undefined-only", str(path)]).splitlines()
    names = (it.strip().partition(" ")[2].partition("@")[0].strip() for it in lines)
    return [it for it in names if it]


def _of_library(kind: str, message: str) -> dict:
    return {"stage": "gate", "kind": kind, "line": 0, "message": message}


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
