"""The process that ncu profiles: it runs the call in the given folder twice.

The first run warms up: libraries are loaded, builds made, buffers allocated. The second run is
profiled. FOLDER/called marks its beginning, and FOLDER/end.pt is left at the end.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

import jitload


def main(folder: Path, device: int) -> None:
    """Run FOLDER/call.pt twice, on this GPU where the call names none."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
    jitload.announce(False)  # the process prints only what the call prints
    call = torch.load(folder / "call.pt", weights_only=False)
    torch.cuda.set_device(device)
    cudart = torch.cuda.cudart()
    try:
        function = call.loaded()
        # The warm-up may write into its arguments, and the call is to find them as they were.
        args, kwargs = tree_map(_copied, (call.args, call.kwargs))
        function(*args, **kwargs)
        del args, kwargs
        torch.cuda.synchronize()
        (folder / "called").touch()
        cudart.cudaProfilerStart()
        function(*call.args, **call.kwargs)
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()
        torch.save({"builds": build_folders()}, _end(folder))
    except Exception as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        torch.save({"error": text}, _end(folder))
        sys.stdout.flush()
        os._exit(1)  # a broken GPU context may not survive an orderly end


def build_folders() -> list[Path]:
    """The build folders of the loaded kernels' newest builds."""
    return [kernel.whole().folder for kernel in jitload.loaded()]


def _end(folder: Path) -> Path:
    return folder / "end.pt"


def _copied(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
