"""python -m jitload ship: an op, or anybody's kernel, as an installable package."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jitload
from lab.auditor.report import FAIL
from lab.ship import build, hub, notebook_cells
from lab.ship.documents import proof_page, readme
from lab.ship.package import Kernel, Package
from lab.ship.proof import prove, write_proof
from lab.ship.python_files import ops_of

EXAMPLES = """\
examples:
  python -m jitload ship layer_norm --to dist                      an op of kernels/
  python -m jitload ship layer_norm rms_norm --package norms --to dist
  python -m jitload ship my.cu my.cpp --python my.py --to dist     anybody's sources
  python -m jitload ship mine.ipynb:sigmoid --to dist              the cell %%cu sigmoid
  python -m jitload ship layer_norm --arch 9.0a --to dist          for one GPU: a shorter build
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began, announcing = time.perf_counter(), jitload.announce(False)

    def told(what: str) -> None:
        print(f"[{time.perf_counter() - began:5.1f} s] {what}", flush=True)

    try:
        ship(options, told)
    except (jitload.CompileError, jitload.MissingTool, OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("shipping was interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        jitload.announce(announcing)
    return 0


def ship(options: argparse.Namespace, told: Callable[[str], None]) -> None:
    package = _package(options)
    to = options.to.absolute()
    tree = to / package.name
    if tree.exists() and not (tree / package.name / "csrc/kernels.json").is_file():
        raise ValueError(
            f"{tree} is there, and no package that this has written: name another --to"
        )
    told(f"{', '.join(k.name for k in package.kernels)}: sources of {tree}")
    package.write(tree)
    if options.hub:
        folder = to / f"{package.name}-hub"
        repository = None if options.hub is True else options.hub
        hub.write(package, _package(options, for_hub=True), folder, repository)
        told(f"for Hugging Face's kernel-builder: {folder}")
    if options.no_wheel:
        return
    build.build_in_place(tree, options.arch)
    told("compiled")
    proof = prove(package, tree)
    write_proof(proof, tree / package.name)
    (tree / package.name / "PROOF.md").write_text(proof_page(package, proof))
    (tree / "README.md").write_text(readme(package, proof))
    told(f"measured: {len(proof['errors'])} errors, {len(proof['checks'])} checks")
    for it in proof["audits"]:
        failed = [row["trap"] for row in it["rows"] if row["verdict"] == FAIL]
        told(f"audited: {it['op']}: {', '.join(failed) or 'no trap'}")
    made = build.wheel(tree, to, options.arch)
    build.clean(tree, package)
    told(f"{made}, {made.stat().st_size / 1e6:.2f} MB")


def _package(options: argparse.Namespace, for_hub: bool = False) -> Package:
    given = [str(it) for it in options.sources]
    paths = [it for it in given if Path(it.partition(":")[0]).suffix]
    if paths and len(paths) < len(given):
        raise ValueError(
            "ops of kernels/ by name, or the paths of sources: not both in one package"
        )
    if paths:
        sources = [p for it in given for p in notebook_cells.files(it, options.to)]
        stem = re.sub(r"\W", "_", Path(sources[0]).stem, flags=re.ASCII)
        name = _name(options.package or stem)
        if options.python and not options.python.is_file():
            raise FileNotFoundError(f"--python {options.python}: there is no such file")
        python = options.python or _beside(sources[0])
        named = [(tuple(sources), stem, python)]
    else:
        every = list(dict.fromkeys(_with_what_they_call(given)))
        if len(every) > 1 and not options.package and len(given) > 1:
            raise ValueError("several ops make one package: say what it is called, --package NAME")
        name = _name(options.package or given[0])
        named = [((op,), None, jitload.op_file(op, ".py")) for op in every]
    kernels = []
    for sources, stem, python in named:
        kernel = stem or sources[0]
        namespace = name if len(named) == 1 or kernel == name else f"{name}_{kernel}"
        shipped = jitload.shipped_sources(
            *sources,
            name=stem,
            flags=options.flag,
            include=options.include,
            namespace=namespace,
            for_hub=for_hub,
        )
        kernels.append(Kernel(shipped, python if python and Path(python).is_file() else None))
    return Package(name, options.version, tuple(kernels), options.reference)


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z]\w*", text, flags=re.ASCII):
        raise ValueError(
            f"a package cannot be called {text!r}: wanted are small letters, digits and _, as"
            " --package NAME says"
        )
    if text in sys.stdlib_module_names or text == "torch":
        raise ValueError(
            f"a package {text} would hide Python's or PyTorch's: choose --package NAME"
        )
    return text


def _with_what_they_call(names: list[str]) -> list[str]:
    """Ops, and before each those that its Python calls."""
    found: list[str] = []
    for name in names:
        python = jitload.op_file(name, ".py")
        called = sorted(ops_of(python)) if python.is_file() else []
        found += [*_with_what_they_call(called), name]
    return found


def _beside(source: str) -> Path | None:
    path = Path(source).with_suffix(".py")
    return path if path.is_file() else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jitload ship",
        description="Write an installable package of kernels that needs nothing of this project:"
        " its sources, its wheel, and a proof of what was measured of it. docs/ship.md tells more.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", nargs="+", metavar="OP|FILE", help="ops, or sources of a kernel")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where it is put")
    parser.add_argument("--package", metavar="NAME", help="its name; default: that of the op")
    parser.add_argument("--version", default="0.1.0", help="of the package; default: 0.1.0")
    parser.add_argument(
        "--arch",
        help="GPUs, as TORCH_CUDA_ARCH_LIST names them; cpu: none; default: 8.0 to 12.0 and PTX",
    )
    parser.add_argument(
        "--hub",
        nargs="?",
        const=True,
        metavar="OWNER/NAME",
        help="the layout of Hugging Face's kernel-builder, as well",
    )
    parser.add_argument("--no-wheel", action="store_true", help="write the sources alone")
    of_files = parser.add_argument_group("for sources of your own")
    of_files.add_argument("--python", type=Path, help="its Python; default: the .py beside it")
    of_files.add_argument("--reference", type=Path, help="a file with its truth, under @op")
    of_files.add_argument("--flag", action="append", default=[], help="for the compilers")
    of_files.add_argument("--include", action="append", default=[], help="a folder of headers")
    return parser


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # to end in order takes torch seconds
