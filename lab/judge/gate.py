"""What a submission's source may not contain; lab.judge.gate_library does the same for its library.

The submission's process has no truth, no clock that counts, no network and no files. The gate
reports an attempt to use them early, and with its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import jitload
from lab.auditor.variables import is_fixed, variables

HEADERS = re.compile(
    r"^(cuda\w*|mma|cooperative_groups(/\w+)*|vector_types|curand_kernel|cub/.+|cuda/.+|math_constants"
    r"|c?math|c?stdint|c?stddef|c?float|c?limits|type_traits|utility|algorithm|array|limits"
    r"|binding|torch/csrc/stable/(library|tensor)|torch/headeronly/.+"
    r"|torch/csrc/inductor/aoti_torch/c/shim)"
    r"(\.h|\.hpp|\.cuh)?$"
)
# Also allowed for an op that takes at::Tensor.
_HEADERS_OF_TENSORS = re.compile(
    r"^(torch/(library|types)|c10/(core|cuda|util)/\w+"
    r"|ATen/(ATen|Tensor|Dispatch|ScalarType|AccumulateType|OpMathType|core/\w+"
    r"|cuda/(CUDAContext|CUDAContextLight|Exceptions)))(\.h|\.cuh)$"
)
# For each kind: names that a kernel may use otherwise, reported only when called; names that are
# always reported; the reason.
CALLS = {
    "processes": (
        "system clone",
        "popen fork vfork posix_spawn syscall execl execle execlp execv execve execvp execvpe",
        "it starts a process",
    ),
    "libraries": ("", "dlopen dlsym dladdr dl_iterate_phdr", "it looks into libraries"),
    "files": (
        "open read write connect send recv",
        "openat fopen freopen pread pwrite mmap mprotect munmap mremap madvise ptrace socket"
        " process_vm_readv process_vm_writev dup2 dup3 pipe2 fcntl fileno fdopen dprintf vdprintf"
        " readv writev preadv pwritev sendto sendmsg sendfile recvfrom recvmsg splice vmsplice"
        " memfd_create shm_open shmget shmat",
        "it reaches for files, memory or network",
    ),
    "clocks": (
        "clock time sleep",
        "clock_gettime gettimeofday usleep nanosleep clock64 rdtsc __rdtsc __rdtscp _rdtsc _rdpmc"
        " __builtin_ia32_rdtsc __builtin_ia32_rdtscp __builtin_ia32_rdpmc __nanosleep"
        " __globaltimer",
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
    "attributes": (
        r"\b__attribute(?:__)?\b|\[\s*\[[^\]]*\bgnu\b|\b__declspec\b",
        "it may run code when loaded",
    ),
    "clocks": (
        r"\bstd\s*::\s*chrono\b|\b__(?:builtin_)?nvvm_\w+|\b__builtin_readcyclecounter\b",
        "it asks for the time",
    ),
    "streams": (
        r"\bcudaEvent\w*|\bcudaStreamCreate\w*|\bcudaLaunchHostFunc\b|\bcudaStreamAddCallback\b"
        r"|\bcudaStreamPerThread\b|\bcudaStreamLegacy\b|\bcudaGraph\w*"
        r"|\bcudaStream(?:Query|IsCapturing|Get\w+)\b"
        r"|\bcu(?:Stream|Event|Graph|Launch)\w+",
        "a stream, an event or a graph of its own, or what tells rounds apart",
    ),
    "memory": (
        r"\bcudaIpc\w*|\bcudaHostRegister\b|\bcuMem\w+|\bcudaProfiler\w*|\bcudaDeviceReset\b"
        r"|\bcudaPointerGetAttributes\b|\bcudaMalloc(?:Managed|Host)\b|\bcudaHost(?:Alloc|Get)\w*"
        r"|\bcudaMemcpy(?:DeviceToHost|Default|Kind|FromSymbol\w*)\b",
        "it reaches for memory that is not its own, or brings tensors to the host",
    ),
    "process control": (
        r"\bstd\s*::\s*(?:thread|jthread|async|filesystem|[io]?fstream|atexit)\b|\bpthread_\w+",
        "it steers the process",
    ),
    "environment": (
        r"\b_{0,2}environ\b|\bprogram_invocation_\w+|\b__progname\w*|\b__libc_arg[cv]\b|\b_dl_\w+",
        "it reads the environment",
    ),
    "libraries": (
        r"\bcuda?Get(?:DriverEntryPoint|ProcAddress|ExportTable|FuncBySymbol)\w*"
        r"|\bcu(?:da)?(?:Module|Library)(?:Load|Get)\w*",
        "it looks into libraries",
    ),
    "checker": (
        r"\b\w*(?i:simulator|playground)\w*|\b__SANITIZE_\w+|\b__has_(?:feature|include|embed)\w*"
        r"|\b__(?:TIME|DATE|TIMESTAMP)__|\b__(?:tsan|asan|ubsan|sanitizer|wrap|real|cxa)_\w+",
        "it tells one build from another, as the checker's, or takes its place",
    ),
    "memory of the process": (
        r"\b_IO_list_all\b|/proc/|\b__builtin_(?:(?:frame|return)_address|thread_pointer|dwarf_cfa"
        r"|apply\w*|longjmp|setjmp|unwind_init|eh_return|\w*init_trampoline)\b",
        "it looks for memory that it was not given",
    ),
    "PyTorch": (
        r"\bPy[A-Z_]\w+|\bpybind11\b|\bat\s*::|\bc10\s*::|\btorch_call_\w+"
        r"|\btorch\s*::(?!\s*(?:stable\s*::\s*Tensor|headeronly\s*::\s*ScalarType)\b)"
        r"|\baoti_torch(?!_get_current_cuda_stream\b)\w+",
        "a submission is CUDA C++ alone; an op of it has tensors, and no other ops",
    ),
    "registration": (
        r"(?:STABLE_)?TORCH_LIBRARY\w*(?!\w*\s*\(\s*TORCH_EXTENSION_NAME\s*,)"
        r"|^\s*#\s*(?:define|undef)\s+\w*TORCH_\w+",
        "it registers ops for a library that is not its own",
    ),
    "names": (
        r"%:|<:(?!:)|\?\?[=/'()!<>-]|\b(?:namespace|struct|class|union)\s+(?:at|c10|caffe2|std|torch)\b"
        r"|\b(?:c10|caffe2|torch)\s*\{|\boperator\s+(?:new|delete)\b",
        "it writes, or defines, names that are not its own",
    ),
    "state": (
        r"\b(?:thread_local|__thread)\b|\bcuda(?:DeviceSet\w+|DeviceGetLimit|SetDeviceFlags|Ctx\w+"
        r"|MemPool(?:[GS]et|Trim)\w*|MemGetInfo|MemAdvise|MemsetSymbol\w*|GetSymbol\w+"
        r"|FuncGetAttributes|Stream(?:[GS]et|Copy)Attribute\w*)\b|\bcu(?:Ctx|Func)\w+"
        # A constant that is copied from the device; the host knows no earlier call.
        r"|\bcudaMemcpyToSymbol\w*\b(?!\s*\((?:[^;]*,\s*cudaMemcpyHostToDevice\s*[,)]"
        r"|(?:[^;,]*,){2,3}[^;,]*;))",
        "kept from call to call, or tells what was",
    ),
    "dice": (r"\b_rd(?:rand|seed)\w*", "it draws numbers that no seed decides"),
    "floating point": (
        r"\b(?:_mm_setcsr|fesetround|fesetenv|feenableexcept)\b",
        "it changes how the process computes",
    ),
    "assembly": (r"\b__builtin_ia32_\w+", "an instruction for the host"),
    "directives": (
        r"^\s*#\s*(?:pragma\s+(?:init|fini|redefine_extname|weak|GCC\s+(?:dependency|target)"
        r"|clang\s+(?:section|attribute))"
        r"|embed|import|line\b|\d)|\.incbin|\b_Pragma\b",
        "it reads, loads or places something, or names other lines than its own",
    ),
}
# The rule "PyTorch" for an op that takes at::Tensor: names that call no op.
WITH_TENSORS = (
    r"\bPy[A-Z_]\w+|\bpybind11\b|\btorch_call_\w+|\baoti_torch\w+|\b(?:at|c10|torch)\s*::\s*(?!(?:"
    r"Tensor|TensorBase|TensorOptions|Half|BFloat16|ScalarType|DeviceType|Device|k[A-Z]\w*"
    r"|ArrayRef|IntArrayRef|optional|nullopt|MemoryFormat|RestrictPtrTraits|PackedTensorAccessor\w*"
    r"|acc_type|opmath_type|empty|empty_like|device_of|DeviceGuard|OptionalDeviceGuard"
    r"|headeronly\s*::\s*ScalarType|cuda\s*::\s*(?:getCurrentCUDAStream|CUDAStream|CUDAGuard"
    r"|OptionalCUDAGuard|getCurrentDeviceProperties))\b)\w+",
    "it may take tensors apart, and call no op of PyTorch's",
)
_RULES = [
    (rf"\b(?:{'|'.join(called.split())})\s*\(", kind, why)
    for kind, (called, _, why) in CALLS.items()
    if called
]
_RULES += [
    (rf"\b(?:{'|'.join(named.split())})\b", kind, why) for kind, (_, named, why) in CALLS.items()
]
_RULES += [(pattern, kind, why) for kind, (pattern, why) in _NAMES.items()]
_STATIC = re.compile(
    r"(?:^|(?<=[{};)]))[ \t]*(?:(?:static|thread_local|inline)\s+)+"
    r"(?!(?:__device__|__global__|__host__|inline|__forceinline__)\b)"
    r"[^(){};=]*(?:(?:=|\{)[^;]*)?;"
    r"|\bmutable\s+\w[^;(){}]*;",
    re.M,
)
_KEPT = "kept from call to call"
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b([\s\w]*\(|)")
_LITERAL = re.compile(r'R"([^\s()\\]{0,16})\((?P<raw>.*?)\)\1"|"(?P<text>(?:\\.|[^"\\])*)"', re.S)
# Text that never occurs in PTX: instructions, registers, numbers and bytes of a CPU.
_X86 = re.compile(
    r"\b(?:syscall|sysenter|rdtscp?|cpuid|int\s+\$?0x80|svc|j\w+|push|pop|lea)\b|\$(?:0x)?\d+"
    r"|%%[re]?[abcd]x\b|%%r(?:\d+|[sb]p|[sd]i)\b"
)
_CLOCK = re.compile(r"%(?:globaltimer|clock|gridid|pm\d|envreg)\w*")  # gridid counts launches
# Forms of PTX: mov.u32, @p bra, .reg .pred p; a continuation line starts with operands.
_PTX = re.compile(
    r"(?:[\w$]+:(?!:)\s*)?(?:@\s*!?\s*[%\w\[\]]+\s+)?(?:\.(?:reg|pragma)\b[^:]*"
    r"|(?:bra|ret|exit|trap)\b[^:]*|[a-ik-z]\w*\.(?:[^:]|::)*|[%,|+\[)\d-](?:[^:]|::)*)?"
)
_OP = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY\s*\(")
_TAKES_TENSORS = re.compile(r"\bTORCH_LIBRARY\s*\(")


def is_op(text: str) -> bool:
    """Whether a source defines a PyTorch op, by the stable ABI or with at::Tensor."""
    return bool(_OP.search(jitload.blank(text)))


def takes_tensors(text: str) -> bool:
    """Whether a source defines an op with at::Tensor."""
    return bool(_TAKES_TENSORS.search(jitload.blank(text)))


def source(text: str) -> list[dict]:
    """Findings, each with its kind, line and message."""
    joined, cuts = _joined(text)
    code = jitload.without_comments(joined)
    blank = jitload.blank(code)
    tensors = takes_tensors(text)
    found = []

    def finding(kind: str, at: int, message: str) -> dict:
        line = joined.count("\n", 0, at) + bisect_right(cuts, at) + 1
        return {"stage": "gate", "kind": kind, "line": line, "message": message}

    for pattern, kind, why in _RULES:
        if tensors and kind == "PyTorch":
            pattern, why = WITH_TENSORS
        whole = code if kind in ("directives", "memory of the process") else blank
        for hit in re.finditer(pattern, whole, re.M):
            if not _is_own(hit[0], blank):
                found.append(finding(kind, hit.start(), f"{hit[0].strip()}: {why}"))
    for hit in re.finditer(r"^\s*#\s*include\s*(?:[<\"]([^>\"]*)[>\"])?(.*)$", code, re.M):
        known = hit[1] is not None and (
            HEADERS.match(hit[1]) or (tensors and _HEADERS_OF_TENSORS.match(hit[1]))
        )
        known = known and ".." not in hit[1]
        if not known:
            what = hit[1] if hit[1] is not None else hit[2].strip()
            more = "; torch/library.h has what an op needs" if "torch/" in what else ""
            message = f"#include of {what}: not among those that a kernel needs{more}"
            found.append(finding("headers", hit.start(), message))
    if hit := re.search(r"##|%:%:", blank):
        found.append(finding("names", hit.start(), "## makes names that cannot be read"))
    for hit in _ASM.finditer(blank):
        if why := _assembly(code, blank, hit):
            found.append(finding("assembly", hit.start(), why))
    if hit := re.search(r"\)\s*(?:asm|__asm__|__asm)\s*\(", blank):
        found.append(finding("names", hit.start(), "a function by another one's name"))
    for hit in _STATIC.finditer(blank):
        if is_fixed(hit[0].partition("=")[0]):
            continue
        found.append(finding("state", hit.end() - 1, f"{' '.join(hit[0].split())[:60]}: {_KEPT}"))
    found += [finding("state", at, f"{words[:60]}: {_KEPT}") for words, at in variables(blank)]
    return sorted(found, key=lambda it: it["line"])


def _is_own(call: str, blank: str) -> bool:
    """Whether the source defines the function called: many define a read() or a write()."""
    name = re.match(r"(\w+)\s*\($", call)
    head = rf"\b{name[1]}\s*\([^;{{}}]*\)\s*(?:const\s*)?\{{" if name else "(?!)"
    return bool(re.search(head, blank))


def _joined(text: str) -> tuple[str, list[int]]:
    """The text with lines that end in a backslash joined, as the compiler does (blanks may follow
    the backslash), and the positions where lines ended."""
    parts = re.split(r"\\[ \t\f\v]*\r?\n", text)
    cuts, at = [], 0
    for part in parts[:-1]:
        at += len(part)
        cuts.append(at)
    return "".join(parts), cuts


def _assembly(code: str, blank: str, hit: re.Match) -> str:
    """Why an asm statement is not PTX; "" if it is."""
    if not hit[1]:
        return f"{hit[0]} without its text: it cannot be read"
    end = jitload.closing(blank, hit.end() - 1) or len(code)
    colon = blank.find(":", hit.end(), end)
    written = code[hit.end() : end - 1 if colon < 0 else colon]
    if _LITERAL.sub("", written).strip():
        return "assembly of which a part is a macro: it cannot be read"
    text = "".join(it["raw"] or it["text"] or "" for it in _LITERAL.finditer(written))
    if re.search(r"\\[^nrt\\\"']", text):
        return "assembly with escapes: it cannot be read"
    text = re.sub(r"\\[nrt]", "\n", text)
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    if x86 := _X86.search(text):
        return f"assembly for the host: {x86[0]}"
    if clock := _CLOCK.search(text):
        return f"assembly for the time: {clock[0]}"
    for said in re.split(r"[;\n]", text):
        if not _PTX.fullmatch(said := said.strip(" \t{}")):
            return f"assembly for the host: {said[:40]}"
    return ""
