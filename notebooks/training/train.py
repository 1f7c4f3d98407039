"""Train the language model of model.py, in one process or in several.

    python notebooks/training/train.py --steps 100
    torchrun --standalone --nproc-per-node=2 notebooks/training/train.py --modules pytorch

The batch of every step is divided among the processes, so that the losses are those of one process,
up to rounding. Each process has a GPU of its own, and they meet through NCCL; where there are more
processes than GPUs, or no GPU, they meet through gloo.

`--check` first compares the gradients that the processes make together with those of the whole
batch in one, in float64. `--out FILE` writes losses, seconds and memory as JSON.
"""

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # importable without an install

import jitload
from notebooks.training import data
from notebooks.training.model import Config, Decoder, use_kernels


@dataclass(frozen=True)
class Setting:
    """What a training is of. batch: rows of all processes."""

    config: Config
    batch: int
    dtype: torch.dtype
    learning_rate: float


# Of a size at which a GPU has real work to do, and of one that takes the simulator a moment.
LARGE = Setting(
    Config(vocabulary=1 << 15, length=1024, width=1024, hidden=2816, heads=16, layers=12),
    batch=16,
    dtype=torch.bfloat16,
    learning_rate=6e-4,
)
TINY = Setting(Config(), batch=8, dtype=torch.float32, learning_rate=3e-3)
WARM_UP = 10  # steps in which the learning rate grows to what it is to be
TOGETHER = 1e-11  # how far gradients in float64 may be off, for sums are taken in another order


def setting() -> Setting:
    """That of this machine: LARGE on a GPU, with fewer rows if it is a small one; else TINY."""
    if jitload.device().type != "cuda":
        return TINY
    memory = torch.cuda.get_device_properties(0).total_memory
    return LARGE if memory > 64e9 else replace(LARGE, batch=4)


# ---- one process among several


@dataclass(frozen=True)
class Process:
    """This process: its number among so many, and where it computes."""

    rank: int
    count: int
    device: torch.device

    def part(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Its rows of tokens and targets, where it computes."""
        return tuple(each[self.rank :: self.count].to(self.device) for each in batch)

    def seed(self, step: int) -> Tensor:
        """A seed that no other step and no other process has, written by the device itself."""
        number = step * self.count + self.rank
        return torch.full((), number, dtype=torch.int64, device=self.device)

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            distributed.all_reduce(value)
        return value


def alone() -> Process:
    return Process(0, 1, jitload.device())


@contextmanager
def joined() -> Iterator[Process]:
    """This process among those that torchrun has started; without torchrun it is alone."""

    def given(name: str, default: int) -> int:
        return int(os.environ.get(name, default))

    rank, count = given("RANK", 0), given("WORLD_SIZE", 1)
    here, beside = given("LOCAL_RANK", 0), given("LOCAL_WORLD_SIZE", 1)  # on this machine
    device, backend, how = jitload.device(), "gloo", {}
    if device.type == "cuda":
        gpus = torch.cuda.device_count()
        device = torch.device("cuda", here % gpus)
        torch.cuda.set_device(device)  # else whatever asks for "cuda" is on GPU 0 in all processes
        if beside <= gpus:
            backend, how = "nccl", {"device_id": device}
    else:
        torch.set_num_threads(1)  # the simulator has its own, and they would wait for each other
    if count == 1:
        yield Process(rank, count, device)
        return
    distributed.init_process_group(backend, timeout=timedelta(minutes=2), **how)
    yield Process(rank, count, device)
    gc.collect()  # models hold the group, in circles; at the process's end it is too late for it
    distributed.destroy_process_group()  # after an error torchrun ends all processes


# ---- a step


class Masters:
    """AdamW on float32 copies of a model's weights, where these are of a smaller type.

    A step changes a weight by a thousandth of it, and a bfloat16 has 8 bits: it would often stay.
    """

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        weights = list(model.parameters())
        masters = [w.detach().float() if w.dtype.itemsize < 4 else w for w in weights]
        pairs = zip(weights, masters, strict=True)
        self.copied = [(weight, master) for weight, master in pairs if master is not weight]
        on_gpu = masters[0].is_cuda  # a CUDA graph can then record a step
        how = {"fused": True, "capturable": on_gpu}
        self.optimizer = torch.optim.AdamW(masters, learning_rate, **how)

    @record_function("Optimizer.step of the masters")  # a profile then has it in one piece
    def step(self, part: float = 1.0) -> None:
        """part: of the learning rate. Gradients are gone afterwards."""
        for weight, master in self.copied:
            master.grad, weight.grad = weight.grad.float(), None
        for group in self.optimizer.param_groups:
            group["lr"] = part * self.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.copied:
            with torch.no_grad():
                torch._foreach_copy_(*map(list, zip(*self.copied, strict=True)))


def backward(
    model: nn.Module,
    tokens: Tensor,
    targets: Tensor,
    seed: Tensor | None = None,
    process: Process | None = None,
) -> Tensor:
    """Add the gradients of the mean loss over all tokens that count, of all processes; return it.

    The model returns the losses of all tokens, or the mean of those that count. A mean of the
    processes' means would be another: their tokens that count need not be equally many.
    """
    losses = model(tokens, targets, seed)
    wide = torch.promote_types(losses.dtype, torch.float32)
    count = (targets != -100).sum().to(wide)
    is_mean = losses.dim() == 0
    total = torch.where(count > 0, losses * count, 0.0) if is_mean else losses.sum(dtype=wide)
    parts = torch.stack([total.detach(), count])
    processes = 1
    if process:
        parts, processes = process.total(parts), process.count
    # DistributedDataParallel takes the mean of the processes' gradients, and wanted is their sum.
    share = processes / parts[1]
    if is_mean:
        (losses * (count * share)).backward()  # of one process times 1
    else:
        (total * share).backward()
    return parts[0] / parts[1]


@dataclass(frozen=True)
class Curve:
    """What a training gave. seconds: of a step, the median; bytes: of the GPU, at most."""

    losses: list[float]
    seconds: float
    bytes: int


def fit(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    process: Process | None = None,
    *,
    learning_rate: float = 1e-3,
    seeded: bool = True,
    told: Callable[[int, Tensor], None] = lambda step, loss: None,
) -> Curve:
    """A step for each batch of (tokens, targets), of which this process takes its part.

    seeded: every step has a seed of its own for all masks; else PyTorch's generator draws them.
    told: called with each step's number and loss.
    """
    process = process or alone()
    on_gpu = process.device.type == "cuda"
    optimizer = Masters(model, learning_rate)
    losses, marks = [], [_mark(on_gpu)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(process.device)
    for step, batch in enumerate(batches):
        tokens, targets = process.part(batch)
        seed = process.seed(step) if seeded else None
        loss = backward(model, tokens, targets, seed, process)
        optimizer.step(min(1.0, (step + 1) / WARM_UP))
        losses.append(loss)  # read at the end: the host waits for none of them
        marks.append(_mark(on_gpu))
        told(step, loss)
    most = torch.cuda.max_memory_allocated(process.device) if on_gpu else 0
    return Curve([loss.item() for loss in losses], statistics.median(_between(marks)), most)


def _mark(on_gpu: bool) -> object:
    if not on_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(marks: list) -> list[float]:
    """Seconds from mark to mark, without the first few, in which all is done for the first time."""
    pairs = list(pairwise(marks))[min(3, len(marks) - 2) :]
    if isinstance(marks[0], float):
        return [after - before for before, after in pairs]
    torch.cuda.synchronize()
    return [1e-3 * before.elapsed_time(after) for before, after in pairs]


def seconds_of(step: Callable[[], object], steps: int = 10) -> float:
    """Of one call, the median of so many that follow each other, after three that do not count."""
    on_gpu = jitload.device().type == "cuda"
    marks = [_mark(on_gpu)]
    for _ in range(3 + steps):
        step()
        marks.append(_mark(on_gpu))
    return statistics.median(_between(marks))


def recorded(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of a step, and where each replay writes what the step returns.

    The step may not wait for the GPU. A replay reads and writes the tensors of this step, so they
    have to live as long as the graph; numbers of the host, such as a learning rate, stay the same.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # what is done for the first time only, is not recorded
            step()
    torch.cuda.current_stream().wait_stream(side)
    gc.collect()  # nothing is freed in the middle of the recording
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def gradient_error(model: nn.Module, batch: tuple[Tensor, Tensor], process: Process) -> float:
    """How far the processes' gradients are from those of the whole batch, in float64.

    Of all tensors the largest difference, as a part of the tensor's largest gradient. The batch is
    cut small, and some targets do not count, more in one process than in another.
    """
    tokens, targets = (each[: 2 * process.count, :64].clone() for each in batch)
    targets[1:, ::3] = -100
    whole, apart = (copy.deepcopy(model).double() for _ in range(2))
    if process.count > 1:
        apart = DistributedDataParallel(apart, device_ids=_ids(process))
    backward(apart, *process.part((tokens, targets)), process=process)
    backward(whole, tokens.to(process.device), targets.to(process.device))
    pairs = zip(whole.parameters(), apart.parameters(), strict=True)
    return max(((a.grad - b.grad).abs().max() / a.grad.abs().max()).item() for a, b in pairs)


def equal_weights(model: nn.Module, process: Process) -> bool:
    """Whether all processes have the same weights, to the last bit, as far as their sums tell."""
    if process.count == 1:
        return True
    mine = torch.stack([weight.detach().double().sum() for weight in model.parameters()])
    others = [torch.empty_like(mine) for _ in range(process.count)]
    distributed.all_gather(others, mine)
    return all(torch.equal(mine, other) for other in others)


def _ids(process: Process) -> list[int] | None:
    return [process.device.index] if process.device.type == "cuda" else None


# ---- the program


def main(arguments: list[str] | None = None) -> None:
    given = parsed(arguments)
    with joined() as process:
        outcome = run(given, process)
        if process.rank == 0 and given.out:
            given.out.write_text(json.dumps(outcome))


def run(given: argparse.Namespace, process: Process) -> dict:
    """What is to be written: how the processes met, what was checked, and the curve."""

    def say(text: str, everybody: bool = False) -> None:
        if everybody or process.rank == 0:
            sys.stdout.write(f"{text}\n")  # in one piece: others write to the same place
            sys.stdout.flush()

    backend = distributed.get_backend() if process.count > 1 else "nobody"
    say(f"process {process.rank} on {process.device}, meets {backend}", everybody=True)
    outcome = {"processes": process.count, "backend": backend}

    config = Config(**{each.name: getattr(given, each.name) for each in fields(Config)})
    torch.manual_seed(0)  # the same weights in all processes
    model = Decoder(config, recompute=given.recompute).to(process.device)
    ours = given.modules == "ours"
    if ours:
        use_kernels(model)
    text = data.words(config.vocabulary)
    batches = (data.batch(text, n, given.batch, config.length) for n in range(given.steps))

    if given.check:
        batch = data.batch(text, 0, given.batch, config.length)
        outcome["gradient_error"] = error = gradient_error(model.eval(), batch, process)
        model.train()
        say(f"gradients together and alone differ by {error:.1e} of them")
        if not error < TOGETHER:
            raise SystemExit(f"wanted is less than {TOGETHER}")

    def told(step: int, loss: Tensor) -> None:
        if step % 10 == 0 or step == given.steps - 1:
            say(f"step {step:4}: loss {loss.item():.4f}")

    model.to(getattr(torch, given.dtype))
    torch.manual_seed(process.rank)  # and other masks in each, where PyTorch draws them
    if given.compile:
        model.compile()
    trained = model
    if process.count > 1:
        trained = DistributedDataParallel(model, device_ids=_ids(process))
    how = {"learning_rate": given.learning_rate, "seeded": ours, "told": told}
    curve = fit(trained, batches, process, **how)
    say(f"{1e3 * curve.seconds:.1f} ms a step, {1e-9 * curve.bytes:.2f} GB at most")
    return {**outcome, "equal_weights": equal_weights(model, process), **asdict(curve)}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    named = {"tiny": TINY, "large": LARGE, "this machine's": setting()}
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--setting", choices=named, default="this machine's")
    default = named[first.parse_known_args(arguments)[0].setting]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[first])
    parser.add_argument("--modules", choices=("ours", "pytorch"), default="ours")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=default.batch, help="of all processes")
    parser.add_argument("--learning-rate", type=float, default=default.learning_rate)
    name = str(default.dtype).removeprefix("torch.")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float64"), default=name)
    for each in fields(Config):
        value = getattr(default.config, each.name)
        parser.add_argument(f"--{each.name}", type=each.type, default=value)
    parser.add_argument("--recompute", action="store_true", help="keep no activations of a layer")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare the gradients first")
    parser.add_argument("--out", type=Path, help="write losses, seconds and memory as JSON")
    return parser.parse_args(arguments)


def launch(*arguments: object, processes: int = 2, seconds: float = 300) -> dict:
    """Run this file by torchrun, show its lines as they come, and return what it wrote.

    Raises RuntimeError if it fails, or takes longer than so many seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        # A machine in a container need not know its own name, and gloo would look it up, too.
        command += ["--local-addr=127.0.0.1", f"--nproc-per-node={processes}", __file__]
        threads = str(max(1, (os.cpu_count() or 1) // processes))
        run = subprocess.Popen(
            [*command, *map(str, arguments), "--out", out],
            env={**os.environ, "OMP_NUM_THREADS": threads, "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        late = threading.Timer(seconds, run.terminate)  # torchrun then ends its processes
        late.start()
        try:
            for line in run.stdout:
                print(line, end="", flush=True)
            if run.wait():
                limit = f" (the limit was {seconds:g} s)" * (not late.is_alive())
                raise RuntimeError(f"torchrun: exit status {run.returncode}{limit}")
            return json.loads(out.read_text())
        finally:
            late.cancel()
            run.terminate()
            run.wait()


if __name__ == "__main__":
    main()
