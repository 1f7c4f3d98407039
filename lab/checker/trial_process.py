"""The child of `lab.trial`: runs the call that lies in the folder which it is given."""

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

    Where the call is interrupted, leave FOLDER/stopped, with where it stood.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts us may ignore it
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, chain=True)  # which ends it then
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jitload.announce(False)  # what the process prints is the call's
    if jitload.default_target() == "cpu":
        jitload.simulator_runtime()  # from here on tensors have guards
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
    os._exit(0)  # a broken GPU context may not survive an orderly end


def _place_of(stop: KeyboardInterrupt) -> str:
    """The line of Python at which an interrupt came; "" where it is one of ours."""
    frame = traceback.extract_tb(stop.__traceback__)[-1]
    if Path(frame.filename).parent == Path(__file__).parent:
        return ""
    return f"it was at {frame.filename}:{frame.lineno} in {frame.name}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
