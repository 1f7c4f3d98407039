"""Errors of a build, written for the person who wrote the source."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from toolchain.sources import file_in, label, line_of


class MissingTool(RuntimeError):
    """A program that a build needs is not on this machine; the message says how to get it."""


class CompileError(RuntimeError):
    """A source that does not compile, explained to the person who wrote it.

    Attributes:
        path, line, column: the place in the user's own file (line and column count from 1; None
            where the compiler gave none).
        message: the compiler's, one line.
        hint: what to do about it, or None if the compiler's message says it already.
        log: Path of the compiler's full output.
        others: the number of further errors in the log.
        further: the first of those at other lines of the user.
        of_machine: whether the machine caused it, not the source: a full disk, too little memory
            or a limit of processes. The same build may succeed later.
    """

    __module__ = "jitload"  # its public module

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
        log: Path | None = None,
        others: int = 0,
        further: Sequence[CompileError] = (),
        of_machine: bool = False,
    ):
        self.message, self.path, self.line, self.column = message, path, line, column
        self.hint, self.log, self.others, self.of_machine = hint, log, others, of_machine
        self.further = tuple(further)
        self.source = line_of(path, line)  # now: the file may change before this is shown
        super().__init__(message)

    def __str__(self) -> str:
        place = [label(self.path)] if self.path else []
        place += [str(n) for n in (self.line, self.column) if n]
        text = [": ".join(filter(None, [":".join(place), f"error: {self.message}"]))]
        if self.source is not None:
            gutter = f"{self.line:>5} | "
            text.append(gutter + self.source)
            if self.column:
                indent = re.sub(r"[^\t]", " ", self.source[: self.column - 1])
                text.append(" " * (len(gutter) - 2) + "| " + indent + "^")
        if self.hint:
            text.append(f"hint: {self.hint}")
        text += map(str, self.further)
        if left := self.others - len(self.further):
            text.append(f"({left} more error{'s' * (left > 1)} in the log)")
        if self.log:
            text.append(f"full log: {self.log}")
        return "\n".join(text)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: only the error, without frames of the loader."""
        from toolchain.links import linked  # late: a warm load does not need it

        text = linked(f"{type(self).__name__}: {self}")
        if self.log and str(self.log) not in text:  # its path would not be a link
            code = "import sys; print(sys.last_value.log.read_text())"
            text = text.replace(f"full log: {self.log.name}", f"full log: {code}")
        return [text]


FURTHER = 3  # errors that are shown after the first

_FULL_DISK = r"No space left on device|Disk quota exceeded"
_NO_MEMORY = r"Killed signal terminated|[Oo]ut of memory|Cannot allocate memory"
NO_PROCESS_LEFT = (
    "this process may not start more processes, even one compiler at a time: the limit of its user"
    " (ulimit -u), of its open files (ulimit -n) or of its container is reached"
)
NO_PROCESS = r"Resource temporarily unavailable|[Cc]annot fork|Too many open files"

_UNKNOWN = (
    r"was not declared in this scope|is undefined|has not been declared|does not name a type"
    r"|unknown type name|use of undeclared identifier"
)

_SEMICOLON = "a semicolon is missing, most often at the end of the line before"
_PARENTHESIS = "a parenthesis or a bracket is not closed, here or on the line before"

# The hint of the first pattern that matches the compiler's message (or lines around it) is used.
HINTS = [
    (
        _FULL_DISK,
        "free some space (`python -m jitload prune`), or set JITLOAD_CACHE and TMPDIR to folders"
        " on another disk",
    ),
    (
        _NO_MEMORY,
        "the machine ran out of memory: end other programs, and load again",
    ),
    (
        r"unrecognized command-line option|unknown argument: |Unknown option '",
        "no flag of the compiler has that name; a program's own arguments come after --, as in"
        " FILE.cu -- -n=4",
    ),
    (
        NO_PROCESS,
        "end other programs, or raise the limit: ulimit -u, docker run --pids-limit, TasksMax of a"
        " systemd unit; then load again",
    ),
    (
        r"cannot find -l",
        "install that library, or say in which folder it is: load(flags=['-L/folder', ...])",
    ),
    (
        r"torch/extension\.h.*No such file|Python\.h.*No such file",
        "Python's headers are missing: install python3-dev (Debian) or use conda's python",
    ),
    (
        r"\b(thrust|cuda|nv)/[\w/.]+'?:? .*(No such file|not found)",
        "it is of NVIDIA's CCCL 3: pip install nvidia-cuda-cccl",
    ),
    (
        r"No such file or directory|cannot open source file|file not found",
        "if it is of the program's collection, put it beside the source or name its folder: -I on"
        " the command line, load(include=[...]) in Python; else install the library that has it",
    ),
    (
        r"(__half|__nv_bfloat16|c10::Half|c10::BFloat16|half).*"
        r"(ambiguous|no operator|more than one|no suitable|no match|cannot convert)"
        r"|(ambiguous|no operator|more than one|no suitable|no match).*"
        r"(__half|__nv_bfloat16|c10::Half|c10::BFloat16)",
        "convert by hand: float(x) to compute, T(y) to store",
    ),
    (
        r"operands? (?:of )?types? .*void.*(?:operator<<|\"<<\")|operator \"<<\" matches",
        "a launch has three angle brackets: kernel<<<blocks, threads>>>(...)",
    ),
    (
        r"(?:uint3|dim3).* to .*in initialization|from \"(?:const )?(?:uint3|dim3)\" to",
        "threadIdx, blockIdx, blockDim and gridDim have an x, a y and a z: threadIdx.x",
    ),
    (
        r"(?=.*_(?:global|device|host|shared|constant)_)"
        r"(?=.*(?:does not name a type|is undefined|unknown type name))",
        "it is written with two underscores on either side: __global__",
    ),
    (
        r"storage size of .* isn.t constant|variable.sized object|variable length array",
        "the size of a __shared__ array is a constant, such as constexpr int N = 256; one that the"
        " launch chooses: extern __shared__ float s[];",
    ),
    (
        r"extended character|stray .\\\d{3}|unexpected character|unrecognized token|non-ASCII|0xe2",
        "a quote, a dash or a space as a PDF or a web page sets it: type it anew",
    ),
    (
        r"stray .`. in program",
        "``` is Markdown's, and no C++: take these lines out",
    ),
    (
        r"expected unqualified-id before numeric constant",
        "a line cannot begin with a number: those of a listing were pasted along",
    ),
    (
        r"invalid preprocessing directive|unrecognized preprocessing directive",
        "a comment begins with // in C++",
    ),
    (
        r"only constructors take member initializers|constructor initializers",
        "the body of a function stands in braces in C++: { ... }",
    ),
    (
        r"to binary .operator\^.|operator \"\^\" matches|expression must have integral",
        "^ is exclusive or: a power is x * x, or powf(x, 3)",
    ),
    (
        r"(?:no matching function for call to|no instance of).*cudaMalloc\b",
        "cudaMalloc writes an address, to where it is told: cudaMalloc(&d, bytes)",
    ),
    (
        r"expected declaration before .}.|extraneous closing brace",
        "a } too many, here or above",
    ),
    (
        r"expected (?:a )?.?[])]",
        _PARENTHESIS,
    ),
    (
        r"expected (?:.?,.? or |a )?.?;|expected initializer before",
        _SEMICOLON,
    ),
    (
        r"assignment of read-only|expression must be a modifiable lvalue",
        "what a kernel writes is no const: take const from the parameter's type",
    ),
    (
        r"calling a __host__ function.*from a __(device|global)__",
        "mark the called function __device__ (or __host__ __device__)",
    ),
    (
        r"identifier .* is undefined in device code",
        "it is a variable of the host: pass it to the kernel as a parameter, or mark it"
        " __constant__ or __device__",
    ),
    (
        rf"(?=.*(?:{_UNKNOWN})).*\b(?:half2?|__half\w*|__\w+2half\w*)\b",
        "#include <cuda_fp16.h>, which declares half",
    ),
    (
        rf"(?=.*(?:{_UNKNOWN})).*\b\w*bfloat16\w*",
        "#include <cuda_bf16.h>, which declares __nv_bfloat16",
    ),
    (
        rf"(?=.*(?:{_UNKNOWN})).*\b[Cc][Uu][Bb][Ll][Aa][Ss]\w*",
        "#include <cublas_v2.h> or <cublasLt.h>; for the CPU these declare what is done with"
        " vectors and dense matrices alone (simulator/include/cublas_api.h)",
    ),
    (
        _UNKNOWN,
        "check the spelling, that it is declared above this line, and its #include",
    ),
    (
        r"undefined symbol|undefined reference",
        "the binding declares a function that no .cu defines: compare names and parameter types",
    ),
    (
        r"uses too much shared data",
        "static __shared__ memory is limited to 48 KiB a block: use extern __shared__ for more",
    ),
    (
        r"Unsupported gpu architecture|is not defined for option 'gpu-architecture'",
        "this nvcc does not know that architecture: set TORCH_CUDA_ARCH_LIST or take a newer nvcc",
    ),
]


def demangled(text: str) -> str:
    """A text with mangled names demangled, if binutils' or LLVM's filt is installed."""
    program = shutil.which("c++filt") or shutil.which("llvm-cxxfilt")
    if not program:
        return text
    return subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout


def hint_for(*texts: str) -> str | None:
    """The hint for a message; without one, that for the longer text around it."""
    for text in texts:
        for pattern, hint in HINTS:
            if re.search(pattern, text):
                return hint
    return None


# Patterns are compiled only if a build fails, because it would slow every import.
_ELSE = (  # errors of later stages, without a line
    r"(?m)^(?:(?:ptxas|nvlink|nvcc) (?:error|fatal)\s*: "
    r"|(?:(?:<command-line>|[\w+.-]+): )?(?:fatal )?error: |.*(?=undefined reference to )"
    r"|.*(?=multiple definition of )|.*(?=cannot find -l))(?P<message>.*)$"
)
_OF_PTXAS = r"(?m)^ptxas .*, line \d+; error\s*: (?P<message>.*)$"
# g++'s first message for a parameter of unknown type.
_CONSEQUENCE = r"variable or field .* declared void"


# g++'s message for a launch on the simulator with wrong arguments.
_LAUNCH = r"no match for call to .\(simulator::Typed<.*::<lambda\([^()]*\)>(?:, )?(.*)>\) \((.*)\)."


# And for one whose configuration does not have two to four parts.
_CONFIGURATION = r"no match for call to .\(simulator::Kernel<.*> ?\) \((.*)\)."


# The file in #line directives for a line that defines a macro: toolchain.macros.
_OF_MACRO = r"(-D|macro )(\w+)"


def _in_users_words(message: str) -> str:
    message = re.sub(_LAUNCH, r"the kernel takes (\1), and is launched with (\2)", message)
    return re.sub(
        _CONFIGURATION,
        r"a launch is <<<blocks, threads>>>, each a number or a dim3, and not <<<(\1)>>>",
        message,
    )


def _by_line(hint: str | None, line: str | None) -> str | None:
    """A better hint than a missing semicolon, if the line shows what is missing."""
    if hint != _SEMICOLON or line is None:
        return hint
    from simulator.scan import blank  # late: only a failed build needs it

    code = blank(line)
    if re.search(r"\bfor\s*\(", code) and code.count(";") < 2:
        return "the parts of a loop are separated by semicolons: for (int i = 0; i < n; i++)"
    return _PARENTHESIS if code.count("(") > code.count(")") else hint


def _errors_and_ways_back(names: Iterable[str]) -> tuple[str, list[str]]:
    """Patterns for an error, and for finding the user's line of an error in a header, best first.

    names: of the user's files; they may contain characters that end a name elsewhere.
    """
    known = map(re.escape, sorted(names, key=len, reverse=True))
    path = "|".join([*known, r"[^\s(:][^(:\n]*"])
    place = rf"(?P<path>{path})(?::(?P<line>\d+)(?::(?P<column>\d+))?:|\((?P<nvline>\d+)\):)"
    error = rf"(?m)^{place} (?:fatal |catastrophic )?error(?: #[\w-]+)?: ?(?P<message>.*)$"
    return error, [
        rf"(?m)^{place}\s+(?:required|recursively)",
        rf"(?m)^{place} note: in (?:instantiation of|expansion of macro)",
        r'(?m)at line (?P<line>\d+) of "?(?P<path>[^"\n]+?)"?$',
        rf"(?m)^(?:In file included| +) from (?P<path>{path}):(?P<line>\d+)",
    ]


def first_error(output: str, users: set[Path], log: Path) -> CompileError:
    """The first error in the compilers' output, at the user's own line if that is known."""
    by_name = {name: path for path in users for name in (label(path), str(path))}
    error, ways_back = _errors_and_ways_back(by_name)
    errors = list(re.finditer(error, output))
    begins = [0, *(match.end() for match in errors)]
    ends = [*(match.start() for match in errors[1:]), len(output)]
    parts = list(zip(errors, begins, ends, strict=False))
    if len(errors) > 1 and re.search(_CONSEQUENCE, errors[0]["message"]):
        parts = parts[1:]
    by_line: dict[object, CompileError] = {}  # the first of each line: the others follow from it
    for match, begin, end in parts:
        around = output[begin:end]
        ways = (way for pattern in ways_back for way in re.finditer(pattern, around))
        for place in (match, *ways):
            if path := by_name.get(place["path"]) or by_name.get(file_in("", place["path"])):
                facts = place.groupdict()
                line = int(facts["line"] or facts["nvline"])
                column = int(facts["column"]) if facts.get("column") else None
                if place is match and column is None:
                    column = _column(output[match.end() + 1 :], path, line)
                message = _in_users_words(match["message"])
                hint = hint_for(match["message"], output[match.start() : end][:500])
                hint = _by_line(hint, line_of(path, line))
                if macro := re.fullmatch(_OF_MACRO, match["path"]):
                    by_flag = f": the flag {macro[0]} defines it" * (macro[1] == "-D")
                    hint = f"{macro[2]} is a macro here{by_flag}"
                if hint in (error.hint for error in by_line.values()):
                    hint = None
                error = CompileError(message, path=path, line=line, column=column, hint=hint)
                by_line.setdefault((path, line), error)
                break
        if len(by_line) > FURTHER:
            break
    if by_line:
        first, *first.further = by_line.values()
        first.log, first.others = log, len(errors) - 1
        return first
    if not errors and (of_ptxas := re.search(_OF_PTXAS, output)):
        path, line = _place_of_ptx(of_ptxas["message"], users)
        return CompileError(of_ptxas["message"], path=path, line=line, log=log)
    other = errors[0] if errors else re.search(_ELSE, output)
    message = other["message"] if other else "the build failed; the log says why"
    if errors and re.match("-(D|include )", flag := errors[0]["path"]):
        message = f"the flag {flag}: {message}"
    others = max(len(errors) - 1, 0)
    if re.search(NO_PROCESS, output):
        message = NO_PROCESS_LEFT
    of_machine = bool(re.search(f"{_FULL_DISK}|{_NO_MEMORY}|{NO_PROCESS}", output))
    hint = hint_for(output) if of_machine else hint_for(message, output)
    return CompileError(message, hint=hint, log=log, others=others, of_machine=of_machine)


def _place_of_ptx(message: str, users: set[Path]) -> tuple[Path | None, int | None]:
    """The user's first line with the text that ptxas names. Its own line numbers are of a PTX file
    that was deleted."""
    named = re.search(r"'([^']+)'", message)
    for path in sorted(users) if named else ():
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            if named[1] in line:
                return path, number
    return None, None


_WARNING = (
    r"(?m)^(?P<place>[^:\n(]+[:(]\d+)[^ \n]*: warning(?P<nvcc> #(?:181|225|226|940)-D)?: "
    r"(?P<message>.*)"
)


def warnings_of(output: str, users: Iterable[Path]) -> list[str]:
    """The compilers' warnings of wrong printf formats and of functions without a return statement,
    with the user's lines."""
    labels = {name: label(path) for path in users for name in (label(path), str(path))}
    warnings = {}
    for match in re.finditer(_WARNING, output):
        path, line = re.split(r"[:(](?=\d+$)", match["place"])
        message, *kind = re.split(r" \[-W(?:format|return-type)", match["message"])
        if path in labels and (match["nvcc"] or kind):
            warnings[f"{labels[path]}:{line}: {message}"] = None
    more = len(warnings) - FURTHER
    return [*warnings][:FURTHER] + [f"{more} more like that"] * (more > 0)


def _column(below: str, path: Path, line: int) -> int | None:
    """The column of nvcc's caret below the line that it quotes; it prints no column."""
    quoted, caret, *_ = [*below.split("\n", 2), "", ""]
    source = line_of(path, line)
    if source is None or caret.strip() != "^" or quoted.strip() not in source:
        return None
    shift = source.index(quoted.strip()) - (len(quoted) - len(quoted.lstrip()))
    return max(caret.index("^") + shift + 1, 1)
