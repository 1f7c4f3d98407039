"""Sources of tests/simulator/kernels, built for the simulator and, where there is one, the GPU."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

import jitload

SOURCES = Path(__file__).parents[1] / "simulator" / "kernels"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

# PyTorch's builds take their operators and conversions from CUDA's half types; plain nvcc does not.
TAKEN = ["HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS"]
PLAIN_CUDA = [f"-U__CUDA_NO_{name}__" for name in TAKEN]


class Kernels:
    """A source of tests/simulator/kernels, or a test's own, and where its tensors live."""

    def __init__(
        self, name: str, target: str, flags: Iterable[str] = (), source: Path | None = None
    ):
        self.device = torch.device(target)
        self.library = jitload.load(
            str(source or SOURCES / f"{name}.cu"),
            name=f"test_{name}",
            target=target,
            flags=[*PLAIN_CUDA, *flags],
        )

    def __getattr__(self, function: str):
        return getattr(self.library, f"run_{function}")

    def tensor(self, values, dtype=torch.int32) -> torch.Tensor:
        return torch.as_tensor(values, dtype=dtype, device=self.device)

    def zeros(self, *shape: int, dtype=torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)


def fixture(name: str, *flags: str):
    """flags: `-O0` for a source of many instances, which then takes half as long to compile."""

    @pytest.fixture(scope="module", params=TARGETS, name=name)
    def kernels(request):
        return Kernels(name, request.param, flags)

    return kernels


@contextlib.contextmanager
def for_hopper(target: str) -> Iterator[None]:
    """Builds for a GPU are for compute capability 9.0 here; skips where the GPU is older."""
    with pytest.MonkeyPatch.context() as patch:
        if target == "cuda":
            if torch.cuda.get_device_capability() < (9, 0):
                pytest.skip("for Hopper and later")
            patch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
        yield


def line_of(path: Path, code: str) -> str:
    """`NAME:LINE` of the only line of a source that has this code."""
    lines = [n for n, line in enumerate(path.read_text().splitlines(), 1) if code in line]
    assert len(lines) == 1
    return f"{path.name}:{lines[0]}"


def message_of(function, *arguments) -> str:
    """The message of the RuntimeError that a call raises."""
    with pytest.raises(RuntimeError) as caught:
        function(*arguments)
    return str(caught.value)


def on_simulator_alone(kernels: Kernels) -> None:
    """Skip a test that a GPU could not end, or where it would mean nothing there."""
    if kernels.device.type == "cuda":
        pytest.skip("on a GPU it has no end, or ends in an error that the GPU does not tell")
