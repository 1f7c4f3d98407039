"""Whether a program that ran is right: by its exit status, and by what it says of itself."""

from __future__ import annotations

import re

WAIVED = 2  # the exit status of a sample that this device does not suit, as NVIDIA's have it

_FAILED = (
    r"(?i:\bfail(?:ed|ure|s)?\b|\bmis-?match(?:es|ed)?\b|\bincorrect\b|\bwrong\b"
    r"|\b(?:do(?:es)?|did|is|are)(?:n't| not) (?:match|equal|correct|the same)\b"
    r"|\bnot (?:equal|(?:the )?same|correct)\b|\bunmatched\b|\bcuda (?:runtime )?_?error\b)"
    r"|\b(?:ERROR|Error)\b[:!]"
)
_PASSED = (
    r"\bPASS(?:ED|ES)?\b|\b[Pp]ass(?:ed|es)?\b|\b[Ss]uccess(?:ful|fully)?\b|\bSUCCESS\w*\b"
    r"|\b(?:results?|arrays?|answers?|matri\w+|outputs?)\b.{0,40}"
    r"\b(?:identical(?! iter)|same|equal)\b"
    r"|\b(?:match(?:es|ed)?|correct(?:ly)?|CORRECT|verified|Verified|VERIFIED|OK)\b|\bno errors?\b"
)
# Words of failure that say that there is none.
_NONE = (
    r"(?i)\b(?:0|no|zero|without)\b[\w\s]{0,20}\b(?:errors?|mis-?match\w*|failures?|failed|wrong)\b"
    r"|\b(?:errors?|mis-?match\w*|failures?|failed|fail|wrong)\b\s*(?:count|rate|s)?\s*[:=]\s*"
    r"(?:0\b(?!\.\d*[1-9])|none|no)|\bif .*\bfail|\btolerance\b|\bas expected\b"
)
_DEVIATION = re.compile(
    r"\b(?:err(?:or)?|diff(?:erence)?|deviation|residual|norm)\b[\w\s()'-]{0,24}?(?:is\b|[:=])\s*"
    r"(-?\d+\.?\d*(?:[eE][-+]?\d+)?|-?nan|-?inf)",
    re.IGNORECASE,
)
_LARGE = 1e-2
_ABSENT = "invalid device ordinal"  # as CUDA calls a second GPU where there is one
_UNASKED = "an error of CUDA that the program does not show"
_USAGE = re.compile(r"^\s*(?:usage|use|syntax)\s*:|\bUsage\b", re.IGNORECASE | re.MULTILINE)


def verdict(status: int, said: str) -> tuple[str, str]:
    """Whether "right", "runs", "wrong", "waived" or "arguments", and the line that says so."""
    if _UNASKED in said:
        return "wrong", _line(said, said.index(_UNASKED))
    if status and (found := re.search(_ABSENT, said)):
        return "waived", _line(said, found.start())
    for line in said.splitlines():
        if re.search(_FAILED, line) and not re.search(_NONE, line) and not _is_small(line):
            if status == WAIVED:
                return "waived", line.strip()
            return "wrong", line.strip()
    if status == WAIVED:
        return "waived", _last(said)
    if status and _USAGE.search(said):
        return "arguments", _line(said, _USAGE.search(said).start())
    if status:
        return "wrong", f"exit status {status}: {_last(said)}"
    deviations = [found for line in said.splitlines() for found in _DEVIATION.finditer(line)]
    for found in deviations:
        if not abs(float(found[1])) <= _LARGE:
            return "runs", found[0]  # it may be relative to anything
    if found := re.search(_PASSED, said):
        return "right", _line(said, found.start())
    if deviations:
        return "right", deviations[0][0]
    return "runs", ""


def passed(said: str) -> str | None:
    """What a program that did not end in time has said of its results: "right", or nothing."""
    found, line = verdict(0, said)
    return line if found == "right" else None


def _is_small(line: str) -> bool:
    found = _DEVIATION.search(line)
    return found is not None and abs(float(found[1])) <= _LARGE


def _line(said: str, position: int) -> str:
    begin = said.rfind("\n", 0, position) + 1
    return said[begin:].split("\n", 1)[0].strip()


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""
