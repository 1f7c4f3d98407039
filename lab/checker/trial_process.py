"""The child process of `lab.trial`: runs the call stored in the given folder."""

import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

import cloudpickle
import torch

import jitload


def main(folder: Path) -> None:
    """Run FOLDER/call.pt; leave FOLDER/called at its start and FOLDER/end.pt at its end.

    If the call is interrupted, leave FOLDER/stopped with the place.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, chain=True)  # the previous handler then ends it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jitload.announce(False)  # only the call prints
    if jitload.default_target() == "cpu":
        jitload.simulator_runtime()  # tensors allocated from here on have guards
    call = torch.load(folder / "call.pt", weights_only=False)
    started = time.perf_counter()
    try:
        run = call.prepared()
        (folder / "called").touch()
        started = time.perf_counter()
        result = run()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        end = {"result": result, "args": call.args, "seconds": seconds}
        torch.save(end, folder / "end.pt", pickle_module=cloudpickle)
    except Exception as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        end = {"error": text, "seconds": time.perf_counter() - started}
        torch.save(end, folder / "end.pt", pickle_module=cloudpickle)
    except KeyboardInterrupt as stop:
        if said := str(stop) or _place_of(stop):
            (folder / "stopped").write_text(said)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an orderly exit may hang in a broken CUDA context


def _place_of(stop: KeyboardInterrupt) -> str:
    """The Python line at which an interrupt arrived; "" if it is in our own code."""
    frame = traceback.extract_tb(stop.__traceback__)[-1]
    if Path(frame.filename).parent == Path(__file__).parent:
        return ""
    return f"it was at {frame.filename}:{frame.lineno} in {frame.name}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
