"""Write docs/foreign.md and docs/foreign.csv: what becomes of other people's CUDA, as it is.

    .venv/bin/python -m docs.programs.foreign FOLDER...    tries every .cu in them, and writes both
        --afresh           tries again what is known, too; by default a result is kept as long as
                           the file and the project are as they were
        --known            tries nothing, and tells of what is known
        --mend             of what is known, tries again all that was not right (or too slow)
        --plain            leaves out what needs another library, or what comes next
        --modern           tries those with tensor cores, asynchronous copies, TMA or clusters
        --only WORD        tries those with the word in SOURCE/NAME; writes no page
        --seconds N        for each run of a program (60)
        --jobs N           at once (2)
        --target cpu|cuda  by default as for `jitload.load`
        --csv FILE         a table of another run, on a machine with a GPU, to compare with
                           (docs/foreign_gpu.csv)
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
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs.programs import foreign_words
from docs.programs.foreign_cases import Case, cases
from docs.programs.foreign_page import built, page, totals_table
from docs.programs.foreign_rows import (
    GOOD,
    Row,
    file_of,
    is_of_modern,
    own_faults,
    read,
    sources,
    write,
    write_sources,
)
from docs.programs.page import ROOT, Part
from jitload import default_target
from toolchain.notes import digest_of

PART = Part("foreign.md", "docs.programs.foreign")
TRY = Path(__file__).with_name("foreign_try.py")
BUILD_SECONDS = 300


def main(words: list[str]) -> None:
    options = parser().parse_args(words)
    project = options.project.resolve()
    target = options.target or default_target()
    found = [case for folder in options.folders for case in cases(folder.resolve())]
    found = [case for case in found if not (options.plain and case.needs)]
    found = [case for case in found if not options.modern or is_of_modern(case.needs)]
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
    if options.out:
        write(options.out, rows)
    elif not options.only:
        tell(rows, options, kept.earlier)


def tell(rows: list[Row], options: argparse.Namespace, earlier: int) -> None:
    """Write docs/foreign.csv and docs/foreign.md; what was not tried now stays as it was."""
    docs = ROOT / "docs"
    names = set(map(file_of, rows))
    stays = [row for row in read(docs / "foreign.csv") if file_of(row) not in names]
    places = sources(docs / "foreign_sources.csv")
    for folder in map(Path.resolve, options.folders):
        places[folder.name] = commit_of(folder)
    order = {name: position for position, name in enumerate(places)}
    rows = sorted([*rows, *stays], key=lambda row: (order[row.source], row.file))
    write(docs / "foreign.csv", rows)
    counts = {name: built(rows, name) for name in places}
    write_sources(docs / "foreign_sources.csv", places, counts)
    own = own_faults(docs / "foreign_own.csv")
    text = page(rows, read(options.csv), own)
    if count := earlier + len(stays):
        text = f"{count} of these were tried with an earlier state of the project.\n\n{text}"
    PART.write(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m docs.programs.foreign")
    made.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    made.add_argument("--afresh", action="store_true")
    made.add_argument("--known", action="store_true")
    made.add_argument("--mend", action="store_true")
    made.add_argument("--plain", action="store_true")
    made.add_argument("--modern", action="store_true")
    made.add_argument("--only", default="")
    made.add_argument("--seconds", type=float, default=60)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--target", choices=("cpu", "cuda"))
    made.add_argument("--csv", type=Path, default=ROOT / "docs/foreign_gpu.csv")
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
        way = case.call.text(case.files[0])[0] if case.call else ""
        way += case.smaller.said if case.smaller else ""
        key = digest_of(case.source, case.name, case.digest, *([way] if way else []))
        return self.folder / f"{key[:24]}.json"


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
        with tempfile.TemporaryDirectory() as folder:
            copies = {}
            if case.smaller and case.smaller.numbers:
                copies = case.smaller.copies(case.own, case.root, Path(folder))
            return self._answer(case, [copies.get(path, path) for path in case.files])

    def _answer(self, case: Case, files: list[Path]) -> dict:
        asked = {
            "kind": case.kind,
            "files": [str(path) for path in files],
            "others": [str(path) for path in case.others],
            "include": [str(path) for path in case.include],
            "arguments": case.arguments,
            "folder": str(case.folder),
            "target": self.target,
            "seconds": self.seconds,
            "flags": flags_for(case, self.target),
        }
        if case.call:
            asked["call"] = [case.source, case.name]
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
    return [*flags, *(case.smaller.flags if case.smaller else ())]


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
    if "off" in answer:
        is_right = answer["off"] <= case.call.limit
        why = f"called from Python: {answer['off']:.1e} of the largest value off"
        if answer["off"] == 0:
            why = "called from Python: no difference"
        verdict = "right" if is_right else "wrong"
        return [_row(case, verdict, why, build=answer["build"], seconds=answer["seconds"])]
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
    if case.smaller:
        why = f"{case.smaller.said}: {why}"
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
