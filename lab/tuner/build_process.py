"""A process that builds variants one by one: it reads a recipe per line, and writes the error of
each build, "" for none. It ends when its input is closed.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys

import jitload


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is no answer
    jitload.announce(False)
    for line in sys.stdin:
        recipe = pickle.loads(base64.b64decode(line))
        try:
            jitload.ensure_with_runtime(recipe)
            said = ""
        except (jitload.CompileError, jitload.MissingTool, OSError, RuntimeError) as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
