"""Stands in for NVIDIA's ncu in tests: does what FAKE_NCU, a JSON file, tells it to.

says: what it prints when it is to profile; status: its exit status then.
end: a file that the profiled process would leave as end.pt; absent where it leaves none.
seconds: how long it takes before it ends.
raw, source: the files with what it prints of a report's pages; without them it writes none.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path


def main(words: list[str]) -> int:
    told = json.loads(Path(os.environ["FAKE_NCU"]).read_text())
    if "--query-metrics" in words:
        return 0
    if "--import" in words:
        page = words[words.index("--page") + 1]
        sys.stdout.write(Path(told[page]).read_text())
        return told.get("import_status", 0)
    Path(told["asked"]).write_text(json.dumps(words))
    report = Path(words[words.index("--export") + 1])
    folder = report.parent
    print(told.get("says", ""), flush=True)
    (folder / "called").touch()
    if "end" in told:
        shutil.copy(told["end"], folder / "end.pt")
    time.sleep(told.get("seconds", 0))
    if told.get("raw"):
        report.touch()
    return told.get("status", 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
