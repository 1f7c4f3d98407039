"""tcgen05.ld.red: a load of tensor memory, and the least or greatest word that each thread loads.

Only sm_103a and sm_110a have it, so it runs on the simulator alone.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
import torch

import jitload
from lab.figure.tensor_memory import register_place
from tests.simulator.test_ptx_tcgen05 import START

COLUMNS, SPLIT = 256, 64
NAN = 0x7FFFFFFF


class Reduced(NamedTuple):
    shape: str
    count: int
    qualifiers: str  # in the order in which they are written

    @property
    def name(self) -> str:
        return f"r{self.shape}_{self.count}_{self.qualifiers.replace('.', '_')}"

    @property
    def kernel(self) -> str:
        values = ", ".join(f"%{i}" for i in range(self.count))
        outputs = ", ".join(f'"=r"(v[{i}])' for i in range(self.count + 1))
        split = f", {SPLIT}" if self.shape == "16x32bx2" else ""
        mnemonic = f"tcgen05.ld.red.sync.aligned.{self.shape}.x{self.count}.{self.qualifiers}"
        return f"""
__global__ void {self.name}_kernel(const int* image, int* words) {{
    __shared__ unsigned memory;
    if (threadIdx.x < 32) allocate(&memory, {COLUMNS});
    __syncthreads();
    fill(memory, image, {COLUMNS});
    int v[{self.count + 1}];
    asm volatile("{mnemonic} {{{values}}}, %{self.count}, [%{self.count + 1}]{split};"
                 : {outputs} : "r"(memory + (threadIdx.x / 32 * 32 << 16)));
    wait_for_loads();
    for (int i = 0; i <= {self.count}; i++) words[threadIdx.x * {self.count + 1} + i] = v[i];
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, {COLUMNS});
}}
extern "C" void {self.name}(const int* image, int* words) {{
    {self.name}_kernel<<<1, 128>>>(image, words);
}}"""

    def of(self, words: list[int]) -> int:
        """The result for what a thread loads."""
        parts = self.qualifiers.split(".")
        choose = max if "max" in parts else min
        if "u32" in parts:
            return choose(words)
        if "s32" in parts:
            return choose(words, key=lambda word: word - (word >> 31 << 32))
        if "abs" in parts:
            words = [word & 0x7FFFFFFF for word in words]
        numbers = [word for word in words if not math.isnan(as_float(word))]
        if not numbers or ("NaN" in parts and len(numbers) < len(words)):
            return NAN
        # -0 is less than +0.
        return choose(numbers, key=lambda word: (as_float(word), -(word >> 31)))


def as_float(word: int) -> float:
    return torch.tensor(word - (word >> 31 << 32), dtype=torch.int32).view(torch.float32).item()


CASES = [
    Reduced(shape, count, qualifiers)
    for shape, most in (("32x32b", 128), ("16x32bx2", 64))
    for count, qualifiers in itertools.chain(
        itertools.product(
            (2,),
            ("min.u32", "u32.max", "s32.min", "max.s32", "min.f32", "f32.max", "min.NaN.f32",
             "f32.max.NaN", "min.abs.f32", "abs.max.f32", "min.abs.NaN.f32", "f32.NaN.abs.max"),
        ),
        itertools.product((8, most), ("min.s32", "max.u32", "max.f32", "min.abs.NaN.f32")),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("tcgen05") / "reduced_loads.cu"
    path.write_text(START + "\n".join(case.kernel for case in CASES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "10.3a")
        return jitload.load(str(path), name="test_reduced_loads", target="cpu")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[1:])
def test_threads_have_what_they_load_and_its_extreme(library, case):
    generator = torch.Generator().manual_seed(case.count)
    image = torch.randint(-(2**31), 2**31, (128, COLUMNS), generator=generator).int()
    # Many NaN, zeros of both signs, infinities, and equal words.
    few = torch.tensor([0, -(2**31), 0x7F800000, -0x800000, 0x7FC00001, -1, 0x3F800000, -2]).int()
    chosen = few[torch.randint(len(few), image.shape, generator=generator)]
    image = torch.where(torch.rand(image.shape, generator=generator) < 0.7, chosen, image)
    words = torch.zeros(128, case.count + 1, dtype=torch.int32)
    getattr(library, case.name)(image, words)
    for thread in range(128):
        places = (register_place(case.shape, thread % 32, i, SPLIT) for i in range(case.count))
        loaded = [int(image[thread // 32 * 32 + lane, column]) for lane, column in places]
        assert words[thread, :-1].tolist() == loaded
        wanted = case.of([word & 0xFFFFFFFF for word in loaded])
        assert int(words[thread, -1]) & 0xFFFFFFFF == wanted, (thread, loaded)
