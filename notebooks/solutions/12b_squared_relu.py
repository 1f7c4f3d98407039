"""The scaffold's files, and what changes in them: both formulas, and the second derivative.

The scaffold leaves the second derivative to be written: of relu(x)^2 it is 2 where x is positive. A
NaN is no number <= 0, and stays one.
"""

import atexit
import importlib
import sys
import tempfile
from pathlib import Path

from lab.scaffold import scaffold

CHANGES = {
    ".cu": {
        "return x * x;": "return x <= 0 ? A(0) : x * x;",
        "return 2 * g * x;": "return x <= 0 ? A(0) : 2 * g * x;",
    },
    ".py": {
        'no_second_derivative("squared_relu")': "2 * (x > 0)",
    },
}

folder = tempfile.TemporaryDirectory()
atexit.register(folder.cleanup)
for path in scaffold("squared_relu", Path(folder.name)):
    text = path.read_text()
    for before, after in CHANGES.get(path.suffix, {}).items():
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)

sys.path.insert(0, folder.name)
answer = importlib.import_module("squared_relu").squared_relu
sys.path.remove(folder.name)
