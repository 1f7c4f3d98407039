"""Write docs/foreign.md and docs/foreign.csv: what becomes of other people's CUDA, as it is.

    .venv/bin/python -m docs.programs.foreign FOLDER...    tries every .cu in them, and writes both
        --afresh           tries again what is known, too; by default a result is kept as long as
                           the file and the project are as they were
        --known            tries nothing, and tells of what is known
        --mend             of what is known, tries again all that was not right (or too slow)
        --plain            leaves out what needs another library, or what comes next
        --only WORD        tries those with the word in SOURCE/NAME; writes no page
        --seconds N        for each run of a program (60)
        --jobs N           at once (2)
        --target cpu|cuda  by default as for `jitload.load`
        --csv FILE         a table of another run, as on a machine with a GPU: joined as a column
        --before FILE      one of an earlier state of the project: its totals stand beside
        --project FOLDER   tries with the project that lies there, and writes FILE of --out alone
        --out FILE         the table's name, in place of docs/foreign.csv

The folders stand outside of the project, and each is named as its repository, of which a file
COMMITS beside it, or its .git, tells the commit. A file with a main() is a program: it is run, and
its exit status and its own words say whether it is right. A file without is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from docs.programs import foreign_words
from docs.programs.foreign_cases import MODERN, Case, cases
from docs.programs.page import ROOT, Part, table
from jitload import default_target
from toolchain.notes import digest_of

PART = Part("foreign.md", "docs.programs.foreign")
TRY = Path(__file__).with_name("foreign_try.py")
BUILD_SECONDS = 300
VERDICTS = {
    "right": "ran, and is right by its own check, or says nothing wrong and checks nothing else",
    "runs": "ran to its end with exit status 0, and says nothing of being right",
    "loads": "has no main(): its functions and kernels can be called from Python",
    "waived": "says itself that this device does not suit it",
    "arguments": "wants arguments that nobody has given it",
    "slow": "did not end in time, and was computing",
    "refused": "is refused in one line that says what is not supported",
    "no build": "does not compile, or lacks a library",
    "wrong": "says itself that it is wrong, or reports an error",
    "crashed": "was ended by a signal",
    "hung": "did not end in time, and did nothing",
    "left out": "needs a library of graphics or the like",
}
GOOD = ("right", "runs", "loads", "waived", "arguments")


@dataclass(frozen=True)
class Row:
    """What came of one file, with one list of arguments.

    Attributes:
        digest: of the file and its own headers.
        needs: what it needs besides CUDA C++ and its runtime.
        build, seconds: how long its build took, and its run.
        why: the line that says so.
    """

    source: str
    file: str
    digest: str
    kind: str
    needs: str
    verdict: str
    build: str
    seconds: str
    why: str


def main(words: list[str]) -> None:
    options = parser().parse_args(words)
    project = options.project.resolve()
    target = options.target or default_target()
    found = [case for folder in options.folders for case in cases(folder.resolve())]
    found = [case for case in found if not (options.plain and case.needs)]
    found = [case for case in found if options.only in f"{case.source}/{case.name}"]
    ways = {"afresh": options.afresh, "mend": options.mend, "known": options.known}
    kept = Kept(options.kept / target, digest_of_project(project), **ways)
    attempt = Attempt(project, target, options.seconds)
    progress = Progress(len(found))

    def try_one(case: Case) -> list[Row]:
        answer = kept.answer(case)
        if answer is None and options.known and not case.graphics:
            return []
        if answer is None and not case.graphics:
            kept.keep(case, answer := attempt.answer(case))
        rows = judged(case, answer)
        progress.tell(rows)
        return rows

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            rows = [row for each in pool.map(try_one, found) for row in each]
        except KeyboardInterrupt:  # what is known by now is kept
            pool.shutdown(wait=False, cancel_futures=True)
            attempt.stop()
            raise
    print(totals_table(rows, read(options.before)))
    if options.out or not options.only:
        out = options.out or ROOT / "docs/foreign.csv"
        write(out, rows)
        if out == ROOT / "docs/foreign.csv":
            text = page(rows, options.folders, read(options.before), read(options.csv))
            if kept.earlier:
                known = f"{kept.earlier} of these were tried with an earlier state of the project."
                text = f"{known}\n\n{text}"
            PART.write(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m docs.programs.foreign")
    made.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    made.add_argument("--afresh", action="store_true")
    made.add_argument("--known", action="store_true")
    made.add_argument("--mend", action="store_true")
    made.add_argument("--plain", action="store_true")
    made.add_argument("--only", default="")
    made.add_argument("--seconds", type=float, default=60)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--target", choices=("cpu", "cuda"))
    made.add_argument("--csv", type=Path)
    made.add_argument("--before", type=Path)
    made.add_argument("--project", type=Path, default=ROOT)
    made.add_argument("--out", type=Path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made.add_argument("--kept", type=Path, default=cache / "kernel-playground-foreign")
    return made


def digest_of_project(project: Path) -> str:
    """Of all that decides what becomes of a file."""
    rooms = ("simulator", "toolchain", "jitloader")
    parts = [p for room in rooms for p in sorted((project / room).rglob("*.*")) if p.is_file()]
    parts = [p for p in parts if p.suffix in (".py", ".h", ".cpp", ".cuh")]
    return digest_of(*(p.read_bytes() for p in parts))[:16]


class Kept:
    """Results of earlier runs, a file for each case."""

    def __init__(self, folder: Path, project: str, afresh: bool, mend: bool, known: bool):
        self.folder, self.project = folder, project
        self.earlier = 0  # how many answers are told that an earlier state of the project gave
        self.afresh, self.mend, self.known = afresh, mend, known
        self.folder.mkdir(parents=True, exist_ok=True)

    def answer(self, case: Case) -> dict | None:
        if self.afresh:
            return None
        try:
            said = json.loads(self._file(case).read_text())
            answer, project = said["answer"], said["project"]
        except (OSError, ValueError, KeyError):
            return None
        if self.mend:
            good = all(row.verdict in (*GOOD, "slow") for row in judged(case, answer))
            return self._told(answer, project) if good else None
        if self.known:
            return self._told(answer, project)
        return self._told(answer, project) if project == self.project else None

    def _told(self, answer: dict, project: str) -> dict:
        self.earlier += project != self.project
        return answer

    def keep(self, case: Case, answer: dict) -> None:
        self._file(case).write_text(json.dumps({"project": self.project, "answer": answer}))

    def _file(self, case: Case) -> Path:
        return self.folder / f"{digest_of(case.source, case.name, case.digest)[:24]}.json"


class Attempt:
    """Tries a case in a process of its own."""

    def __init__(self, project: Path, target: str, seconds: float):
        self.project, self.target, self.seconds = project, target, seconds
        self.processes: set[subprocess.Popen] = set()

    def stop(self) -> None:
        for process in list(self.processes):
            _end(process)

    def answer(self, case: Case) -> dict:
        """What `foreign_try` says."""
        asked = {
            "kind": case.kind,
            "files": [str(path) for path in case.files],
            "others": [str(path) for path in case.others],
            "include": [str(path) for path in case.include],
            "arguments": case.arguments,
            "folder": str(case.folder),
            "target": self.target,
            "seconds": self.seconds,
            "flags": flags_for(case, self.target),
        }
        process = subprocess.Popen(
            [sys.executable, str(TRY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": str(self.project)},
            start_new_session=True,
        )
        self.processes.add(process)
        limit = BUILD_SECONDS + (self.seconds + 5) * len(case.arguments)
        try:
            out, errors = process.communicate(json.dumps(asked), timeout=limit)
        except subprocess.TimeoutExpired:
            return {"verdict": "hung", "why": "the build did not end in time"}
        finally:
            _end(process)
            process.wait()
            self.processes.discard(process)
        try:
            return json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            last = (errors.strip().splitlines() or ["nothing"])[-1]
            why = f"while it was loaded, with status {process.returncode}: {last}"
            return {"verdict": "crashed", "why": why}


def flags_for(case: Case, target: str) -> list[str]:
    """What the file's own build would say."""
    flags = []
    if "OpenMP" in case.needs:
        flags.append("-fopenmp" if target == "cpu" else "-Xcompiler=-fopenmp")
    if standard := case.standard:
        flags.append(f"-std=c++{standard}")
    return flags


def _end(process: subprocess.Popen) -> None:
    """End a process, which ends its compilers first, and the session that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        if process.poll() is None:
            process.terminate()
            process.wait(5)
        os.killpg(process.pid, signal.SIGKILL)


def judged(case: Case, answer: dict | None) -> list[Row]:
    """A row for each list of arguments; where it did not come to running, one."""
    if case.graphics:
        return [_row(case, "left out", case.needs[0])]
    if "verdict" in answer:
        return [_row(case, answer["verdict"], answer["why"], build=answer.get("build"))]
    return [
        _judged(case, words, ran, answer["build"])
        for words, ran in zip(case.arguments, answer["runs"], strict=True)
    ]


def _judged(case: Case, words: tuple[str, ...], ran: dict, build: float) -> Row:
    said, status = ran["said"], ran["status"]
    if ran["timed_out"]:
        if line := foreign_words.passed(said):
            verdict, why = "right", f"{line} (and was stopped later, when its time was over)"
        else:
            verdict = "slow" if ran["cpu"] > 0.05 * ran["seconds"] else "hung"
            why = said.strip().splitlines()[-1] if said.strip() else ""
    elif status == 127 and "cannot be started" in said:
        verdict, why = "no build", said.strip().splitlines()[-1]
    elif status < 0:
        verdict, why = "crashed", ran["told"]
        if status == -signal.SIGABRT and said.strip():
            why = f"SIGABRT: {said.strip().splitlines()[-1]}"
    else:
        verdict, why = foreign_words.verdict(status, said)
    return _row(case, verdict, why, words, build, ran["seconds"])


def _row(
    case: Case,
    verdict: str,
    why: str,
    words: tuple[str, ...] = (),
    build: float | None = None,
    seconds: float | None = None,
) -> Row:
    why = re.sub(r"\S*/\S+\.so: ", "", why)  # no paths of this machine
    for place in (case.folder, case.root, case.root.parent):
        why = why.replace(f"{place}/", "")
    return Row(
        source=case.source,
        file=f"{case.name} [{' '.join(words)}]" if words else case.name,
        digest=case.digest,
        kind=case.kind,
        needs=", ".join(case.needs),
        verdict=verdict,
        build="" if build is None else f"{build:.1f}",
        seconds="" if seconds is None else f"{seconds:.1f}",
        why=re.sub(r"[^\x20-\x7e]", "?", why.translate(_PLAIN))[:240],
    )


_PLAIN = str.maketrans("\u2018\u2019\u201c\u201d\t", "''\"\" ")


class Progress:
    """A line for each case that has been tried."""

    def __init__(self, count: int):
        self.count, self.done, self.started = count, 0, time.monotonic()
        self.lock = threading.Lock()

    def tell(self, rows: list[Row]) -> None:
        with self.lock:
            self.done += 1
            for row in rows:
                took = time.monotonic() - self.started
                print(
                    f"{took:7.1f} s  {self.done}/{self.count}  {row.verdict:9}"
                    f" {row.source}/{row.file}: {row.why}",
                    flush=True,
                )


# ---- the tables


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(asdict(row).values() for row in rows)


def read(path: Path | None) -> list[Row]:
    if path is None:
        return []
    with path.open(newline="") as file:
        return [Row(**row) for row in csv.DictReader(file)]


SHOWN = ("right", "runs", "loads", "slow", "refused", "no build", "wrong", "crashed", "hung")


def totals_table(rows: list[Row], before: list[Row]) -> str:
    """A line for each source, and one for all."""
    sources = list(dict.fromkeys(row.source for row in rows))
    head = ["source", "files", *SHOWN, "other", "builds", *(["built before"] if before else [])]
    lines = [_totals(source, rows, before) for source in sources]
    return table(head, [*lines, _totals(None, rows, before)], "lr")


def _totals(source: str | None, rows: list[Row], before: list[Row]) -> list[object]:
    own = [row for row in rows if source in (row.source, None)]
    tried = {row.digest + row.file: row for row in own if row.verdict != "left out"}
    counts = Counter(row.verdict for row in own)
    others = sum(count for verdict, count in counts.items() if verdict not in SHOWN)
    earlier = [row for row in before if source in (row.source, None)]
    files = {_file(row) for row in tried.values()}
    built = {_file(row) for row in tried.values() if _builds(row)}
    known = {_file(row) for row in earlier if _builds(row)} & files
    return [
        source or "all",
        len(files),
        *(counts[verdict] or "" for verdict in SHOWN),
        others or "",
        len(built),
        *([len(known)] if before else []),
    ]


def _file(row: Row) -> tuple[str, str]:
    return row.source, re.sub(r" \[.*\]$", "", row.file)


def _builds(row: Row) -> bool:
    return row.verdict not in ("no build", "refused", "left out") and bool(row.build)


def is_modern(row: Row) -> bool:
    return any(need in row.needs.split(", ") for need in MODERN)


def page(rows: list[Row], folders: list[Path], before: list[Row], other: list[Row]) -> str:
    """Totals, then all that is not right, with the line that says why."""
    named = [f"- {folder.resolve().name}: {commit_of(folder.resolve())}" for folder in folders]
    failing = [row for row in rows if row.verdict not in GOOD]
    meanings = [f"- **{verdict}**: {meaning}." for verdict, meaning in VERDICTS.items()]
    stopped = [
        [cause, count, ", ".join(f"{row.source}/{row.file}" for row in found[:4])]
        for cause, count, found in causes(rows)
    ]
    parts = [
        f"{time.strftime('%d %B %Y')}, target {default_target()}.",
        totals_table(rows, before),
        "\n".join(meanings),
        "## Tensor cores, asynchronous copies, TMA, clusters",
        "Those of the files above that use one of these:",
        totals_table([row for row in rows if is_modern(row)], []),
        joined(rows, other) if other else "",
        "## What stops them",
        table(["the line", "files", "as in"], stopped, "lrl"),
        "## What is not right, and why",
        table(
            ["file", "needs", "verdict", "why"],
            [[f"{r.source}/{r.file}", r.needs, r.verdict, _quoted(r.why)] for r in failing],
            "l",
        ),
        "## The sources",
        "\n".join(named),
    ]
    return "\n\n".join(filter(None, parts))


# What one file's message has before that of all.
_PLACE = r"^.*?\berror: (\S+\.so: )?|^\S+:\d+(:\d+)?: |^the program cannot be started: \S+: "


def causes(rows: list[Row]) -> list[tuple[str, int, list[Row]]]:
    """What files fail of, the commonest first: the line that says so, how many, and which."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.verdict in GOOD or row.verdict == "left out":
            continue
        message = re.sub(_PLACE, "", row.why)
        message = re.sub(r"; did you mean .*|\d+\.\d+ s|0x[0-9a-f]+|\(aka .*?\)", "", message)
        if row.verdict not in ("no build", "refused"):
            told = row.verdict not in ("slow", "hung") and message.strip()
            message = f"{row.verdict}: {message}" if told else row.verdict
        found.setdefault(message.strip(), []).append(row)
    counts = [(what, len({_file(row) for row in each}), each) for what, each in found.items()]
    return sorted(counts, key=lambda cause: -cause[1])


def joined(rows: list[Row], other: list[Row]) -> str:
    """Where another target came to another verdict."""
    known = {(row.source, row.file, row.digest): row for row in other}
    pairs = [(row, known.get((row.source, row.file, row.digest))) for row in rows]
    pairs = [(row, there) for row, there in pairs if there]
    differ = [(row, there) for row, there in pairs if row.verdict != there.verdict]
    lines = [
        [f"{row.source}/{row.file}", row.verdict, there.verdict, _quoted(there.why)]
        for row, there in differ
    ]
    said = f"{len(pairs) - len(differ)} of {len(pairs)} have the same verdict on a GPU."
    return "\n\n".join(
        filter(
            None, ["## On a GPU", said, lines and table(["file", "here", "GPU", "why"], lines, "l")]
        )
    )


def _quoted(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`" if text else ""


def commit_of(folder: Path) -> str:
    """The commit of a repository, from a file COMMITS beside it or from its .git."""
    listed = folder.parent / "COMMITS"
    if listed.is_file():
        for line in listed.read_text().splitlines():
            repository, _, commit = line.partition(" ")
            if repository.replace("+", "/").rpartition("/")[2] == folder.name:
                return f"{repository.replace('+', '/')} at {commit}"
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(sys.argv[1:])
