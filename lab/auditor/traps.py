"""The list of traps that `lab.audit` tries on an op, in order, with advice for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lab.auditor import cases, checks, frameworks, gpus, gradients, memory, numbers, sources
from lab.auditor.subject import Subject


@dataclass(frozen=True)
class Trap:
    """One row of an audit.

    find: raises Found if the op falls into it, Refused or NotRun; returns what was tried.
    advice: one sentence that says what to do about it.
    """

    section: str
    name: str
    find: Callable[[Subject], str]
    advice: str

    @property
    def key(self) -> str:
        return f"{self.section}/{self.name}"


_CONTIGUOUS = "Call contiguous() in the binding, or pass strides to the kernel."
_ARRIVING = "Call contiguous() on grad in backward: cat, expand and transpose make it strided."
_ALIGNED = "Test the address before loads of 16 bytes, and go element by element where it is odd."

NUMBERS = [
    Trap("numbers", "error", numbers.error, "Accumulate in float, and round once, at the end."),
    Trap("numbers", "shapes", numbers.shapes, "Guard the tail: compare each index with the size."),
    Trap("numbers", "empty", numbers.empty, "Return before the launch where there is no element."),
    Trap(
        *("numbers", "beyond a grid", numbers.grid),
        "Put rows in the grid's x, or go through them in a loop: y and z end at 65535.",
    ),
    Trap(
        *("numbers", "scales", numbers.scales),
        "Subtract the maximum or the mean before squares and exponentials.",
    ),
    Trap(
        *("numbers", "special values", numbers.special),
        "Let NaN and infinities through: fmaxf drops a NaN, and x != x finds one.",
    ),
    Trap(
        *("numbers", "subnormal", numbers.tiny),
        "Leave out --use_fast_math, and add eps where the formula has it.",
    ),
    Trap(
        *("numbers", "same bits", numbers.same_bits),
        "Sum in a fixed order instead of with atomicAdd, and set memory before it is added to.",
    ),
    Trap(
        *("numbers", "fresh memory", numbers.unwritten),
        "Write every element of what torch::empty returns, or ask for zeros.",
    ),
    Trap(
        *("numbers", "parameters", numbers.parameters),
        "Declare the parameter double in the schema, and pass it on as it comes.",
    ),
]

LAYOUTS = [
    *(
        Trap(
            "layouts",
            name.replace("_", " "),
            partial(memory.layout, name),
            _ALIGNED if name == "misaligned" else _CONTIGUOUS,
        )
        for name in cases.LAYOUTS
    ),
    Trap(
        *("layouts", "inputs unwritten", memory.inputs_unwritten),
        "Declare inputs const, and write to a tensor of your own.",
    ),
    Trap(
        *("layouts", "outputs of their own", memory.not_aliased),
        "Allocate the output in each call.",
    ),
    Trap(
        *("layouts", "nothing cached", memory.cached),
        "Compute from the values of each call: addresses are used again.",
    ),
    Trap("layouts", "nothing leaks", memory.leaks, "Keep no list of tensors beyond the call."),
]

AUTOGRAD = [
    Trap(
        *("autograd", "gradient there", gradients.there),
        "Register a formula: torch.library.register_autograd, or @lab.op(backward=...).",
    ),
    Trap("autograd", "gradients", gradients.right, "Derive the formula again, type by type."),
    Trap("autograd", "gradcheck", gradients.checked, "Compare with the numerical Jacobian."),
    *(
        Trap(
            "autograd",
            f"{name.replace('_', ' ')} gradient",
            partial(memory.arriving, name),
            _ALIGNED if name == "misaligned" else _ARRIVING,
        )
        for name in ("transposed", "strided", "sliced", "expanded", "misaligned")
    ),
    Trap(
        *("autograd", "needs_input_grad", gradients.needs),
        "Compute the gradients that ctx.needs_input_grad asks for, each by itself.",
    ),
    Trap(
        *("autograd", "saved tensors", memory.saved),
        "Save tensors with ctx.save_for_backward: it notices a change in place.",
    ),
    Trap("autograd", "backward twice", gradients.twice, "Do not write to what backward was given."),
    Trap(
        *("autograd", "double backward", gradients.double),
        "Give backward a formula of its own, or @once_differentiable.",
    ),
    Trap(
        *("autograd", "torch.func", gradients.transforms),
        "Use setup_context, and keep tensors by save_for_backward alone.",
    ),
    Trap(
        "autograd", "vmap", gradients.batched, "Register a rule with torch.library.register_vmap."
    ),
    Trap(
        *("autograd", "forward mode", gradients.forward_mode),
        "Mend jvp, or leave it out: PyTorch then refuses forward mode.",
    ),
]

PYTORCH = [
    Trap(
        *("PyTorch", "opcheck", frameworks.opcheck),
        "Have the schema say what is written, and register fake and autograd for the op.",
    ),
    Trap(
        *("PyTorch", "fake tensors", frameworks.fake),
        "Give register_fake the shape, type and strides that the op returns.",
    ),
    Trap(
        *("PyTorch", "torch.compile", frameworks.compiled),
        "Make shapes in register_fake of the inputs' own, never of numbers that were seen.",
    ),
    Trap(
        *("PyTorch", "autocast", frameworks.autocast),
        "Refuse tensors of several types, or cast them: register_autocast.",
    ),
    Trap(
        *("PyTorch", "wrong inputs", frameworks.wrong_inputs),
        "Check sizes and types in the binding: TORCH_CHECK.",
    ),
    Trap(
        *("PyTorch", "settings", frameworks.settings),
        "Put back what the call sets, and draw from a torch.Generator of its own.",
    ),
    Trap("PyTorch", "inference mode", frameworks.modes, "Do not rely on versions of tensors."),
    Trap("PyTorch", "copies", frameworks.copies, "Keep no pointer in the object."),
    Trap("PyTorch", "threads", frameworks.threads, "Keep no buffer that calls share."),
    Trap(
        *("PyTorch", "another stream", gpus.stream),
        "Launch on at::cuda::getCurrentCUDAStream().",
    ),
    Trap(
        *("PyTorch", "CUDA graph", gpus.graph),
        "Launch on the current stream, and neither wait nor call cudaMalloc.",
    ),
    Trap(
        *("PyTorch", "another device", gpus.device),
        "Open a c10::cuda::CUDAGuard on the first tensor's device.",
    ),
]

KERNEL = [
    Trap(
        "kernel",
        name,
        partial(checks.kind, name),
        {
            "races": "Put __syncthreads() between the two lines.",
            "bounds": "Compare the index with the size before the access.",
            "uninitialised": "Write the memory before it is read.",
            "misaligned": _ALIGNED,
            "unwritten": "Have the grid cover every element.",
        }.get(name, "Have all threads of a block reach the barrier."),
    )
    for name in (*checks.KINDS, "barriers and launches")
]

SOURCE = [
    Trap(
        *("source", "stream", sources.stream),
        "Pass at::cuda::getCurrentCUDAStream() as the fourth number of the launch.",
    ),
    Trap(
        *("source", "device guard", sources.guard),
        "Open a c10::cuda::CUDAGuard(x.device()) before the launch.",
    ),
    Trap(
        *("source", "checked launch", sources.unchecked),
        "Put C10_CUDA_KERNEL_LAUNCH_CHECK() behind the launch, or return cudaGetLastError().",
    ),
    Trap(
        *("source", "no fixed device", sources.device),
        "Take the device from the first tensor.",
    ),
    Trap(
        *("source", "no waiting", sources.waits),
        "Leave waiting and allocation to PyTorch: at::empty, and the current stream.",
    ),
    Trap(
        *("source", "2^31 elements", sources.overflow),
        "Use int64_t for sizes and for what is made of blockIdx, or refuse more than INT_MAX.",
    ),
    Trap(
        "source",
        "nothing kept",
        sources.kept,
        "Allocate in each call: PyTorch's allocator is fast.",
    ),
    Trap(
        *("source", "order of sums", sources.atomics),
        "Sum per block in a fixed order, then sum the blocks.",
    ),
]

TRAPS = [*NUMBERS, *LAYOUTS, *AUTOGRAD, *PYTORCH, *KERNEL, *SOURCE]
