"""A new op: `python -m lab.scaffold NAME`

makes NAME.cu, .cpp and .py in kernels/elementwise, and adds the reference to reference.py. It
copies `square` under the new name, so the op works at once, passes every test, and computes x * x;
it prints what to change from there. The second derivative is not copied, because it would be
silently wrong for another formula: it raises until somebody writes it.

`--folder kernels/norms` puts the files into another family's folder, or a new one. A folder outside
kernels/ works, too; such an op is imported from there, and no test of this project finds it.
"""

import argparse
import inspect
import keyword
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import jitload
import reference

MODEL = "square"
KINDS = (".cu", ".cpp", ".py")
FOLDER = jitload.KERNELS / "elementwise"  # the folder of the model, and the default for new ops
TRUTH = jitload.KERNELS.parent / "reference.py"

# Parts that hold for x * x alone, and their replacements. The gradient g * f'(x) is linear in g for
# any f, so that half of the second derivative holds.
OTHERWISE = {
    ".cu": {
        r"The arithmetic is free beside it\.\n": (
            "The arithmetic is free beside it\n"
            "// for a formula of few instructions. Check that, or change this, for one of many.\n"
        ),
        rf"template <class A>\n__device__ A {MODEL}\(": (
            "// The formula and its gradient, for all kernels below. A is float, and double for\n"
            "// double: write A(0.5), not 0.5. exp, erf, sqrt and the like work for both alike.\n\n"
            f"template <class A>\n__device__ A {MODEL}("
        ),
    },
    ".cpp": {},
    ".py": {
        r"Gradients of every order are right:.*?\.\n": (
            "There is no second derivative:\n    asking for one raises RuntimeError.\n"
        ),
        r'kernel\.register_autograd\(\n    "backward",.*?\n\)\n': (
            "def _save_backward(ctx, inputs, output):\n"
            "    grad, x, ctx.version = inputs\n"
            "    ctx.save_for_backward(grad, x)\n\n\n"
            "def _double_backward(ctx, grad_dx):\n"
            "    grad, x = ctx.saved_tensors\n"
            "    # For a second derivative write f''(x), in PyTorch's ops, in the place of the\n"
            "    # call that raises. Then drop the import of that function, change the docstring\n"
            "    # above, and add `import torch` if the formula has torch.exp or the like.\n"
            "    return (\n"
            "        kernel.backward(grad_dx, x, ctx.version),\n"
            f'        grad_dx * grad * no_second_derivative("{MODEL}"),\n'
            "        None,\n"
            "    )\n\n\n"
            'kernel.register_autograd("backward", _double_backward, setup_context=_save_backward)\n'
        ),
        r"import version_number": "import no_second_derivative, version_number",
    },
}

TO_DO = """
It computes x * x as it is, and every test passes. For another formula change:

1. {truth}: the last function, in plain PyTorch.
2. {place}.cu: the functions {name} and {name}_gradient, which all kernels below them call. They
   compute in A, which is float, and double for double: write A(0.5), not 0.5, and exp, not expf.
3. {place}.cu and .py: the lines at the top that name the formula.

Then {then}
"""


def scaffold(name: str, folder: Path = FOLDER) -> list[Path]:
    """Make the three files of a new op in `folder`, formatted as the others; return their paths.

    For an op of kernels/ the reference function is appended to reference.py.

    Raises:
        ValueError: the name is no lower-case identifier, or taken; the folder is kernels/include or
            nested deeper in kernels/ than a family's folder; or kernels/ is an installed copy.
        FileExistsError: one of the files exists already; nothing is written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"name is {name!r}; wanted is a lower-case identifier, as squared_relu")
    is_ours = folder.is_relative_to(jitload.KERNELS)
    if name in reference.OPS or (is_ours and name in jitload.op_files(".cu")):
        raise ValueError(f"name is {name!r}; there is an op of that name already")
    can_be_made = folder.parent == jitload.KERNELS and folder.name.isidentifier()
    is_family = folder in jitload.op_folders() or (can_be_made and not folder.exists())
    if is_ours and not is_family:
        raise ValueError(f"folder is {folder}; wanted is a family's, as {FOLDER}")
    if is_ours and not jitload.is_for_editing():
        raise ValueError(
            f"{jitload.KERNELS} is as it was installed: work in a folder that kernel-playground new"
            " has made, or name another one"
        )
    paths = [folder / f"{name}{kind}" for kind in KINDS]
    if there := [path.name for path in paths if path.exists()]:
        raise FileExistsError(f"{folder} has {', '.join(there)} already; remove them first")
    if is_ours:
        folder.mkdir(exist_ok=True)
    for path in paths:
        text = (jitload.KERNELS / f"{MODEL}{path.suffix}").read_text()
        text = renamed(of_any_formula(text, path.suffix), name)
        if not is_ours:  # the loader finds only its own ops by name
            text = text.replace(
                f'jitload.load("{name}")',
                'jitload.load(*(Path(__file__).with_suffix(kind) for kind in (".cu", ".cpp")))',
            ).replace("from torch import", "from pathlib import Path\n\nfrom torch import")
        path.write_text(text)
        _format(path)
    if is_ours:
        with TRUTH.open("a") as truth:
            truth.write(f"\n\n{stub(name)}")
    return paths


def of_any_formula(text: str, kind: str) -> str:
    """A file of the model, without what holds for x * x alone: the second derivative raises."""
    for part, instead in OTHERWISE[kind].items():
        text, count = re.subn(part, lambda _, new=instead: new, text, flags=re.DOTALL)
        if count != 1:
            raise RuntimeError(f"kernels/{MODEL}{kind} has {count} of {part!r}; wanted is one")
    return text


def renamed(text: str, name: str) -> str:
    """The model's text with its name replaced, also where it is part of an identifier."""
    return re.sub(rf"(?<![A-Za-z]){MODEL}(?![A-Za-z])", name, text)


def stub(name: str) -> str:
    """The text to add to reference.py: the model's reference under the new name."""
    op = reference.OPS[MODEL]
    shapes = ", ".join(f'{argument}="{shape}"' for argument, shape in op.shapes.items())
    function = inspect.getsource(op.function)
    return f"@op({shapes})\n{renamed(function[function.index('def ') :], name)}"


def _format(path: Path) -> None:
    """Run the project's formatter, if installed: a longer name moves line breaks."""
    tool = {".py": ["ruff", "format", "--quiet"]}.get(path.suffix, ["clang-format", "-i"])
    scripts = sysconfig.get_path("scripts")
    if found := shutil.which(tool[0], path=scripts) or shutil.which(tool[0]):
        style = [f"--style=file:{jitload.KERNELS.parent / '.clang-format'}"]
        options = style if tool[0] == "clang-format" else []
        subprocess.run([found, *tool[1:], *options, str(path)], check=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.scaffold", description="Make the three files of a new op."
    )
    parser.add_argument("name", help="of the op, as squared_relu")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: kernels/elementwise")
    options = parser.parse_args(arguments)
    try:
        paths = scaffold(options.name, options.folder.resolve())
    except (ValueError, OSError) as error:
        print(f"scaffold: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(path)
    if paths[0].is_relative_to(jitload.KERNELS):
        print(TRUTH)
        place = paths[0].with_suffix("").relative_to(TRUTH.parent)
        tested = (TRUTH.parent / "tests").is_dir()
        then = f"run: python -m pytest tests -k {options.name}"
        then = then if tested else f'compare in a notebook: lab.compare("{options.name}")'
        print(TO_DO.format(name=options.name, place=place, truth=TRUTH.name, then=then), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
