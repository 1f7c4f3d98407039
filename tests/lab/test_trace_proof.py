"""What a trace shows of kernels of every kind, beside what printf says of the same statements."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from checked import instrumented
from printed import compare, with_printf

import jitload
import lab

LADDERS = jitload.KERNELS.parent / "notebooks/ladders"
TYPES = {"float": torch.float32, "double": torch.float64, "int": torch.int32, "bool": torch.bool}
TYPES |= {"nv_bfloat16": torch.bfloat16, "__nv_bfloat16": torch.bfloat16, "__half": torch.float16}
TYPES |= {"half": torch.float16, "int64_t": torch.int64, "int16_t": torch.int16}
TYPES |= {"T": torch.bfloat16, "uint8_t": torch.uint8}
SIZES = {"n": 300, "rows": 3, "cols": 256, "threads": 64, "blocks": 2, "parts": 2, "depth": 64}
SIZES |= {"units": 64, "p": 0.25, "eps": 1e-5, "steps": 3, "at_once": 1, "w_unit": 1, "w_depth": 64}
SIZES |= {"offset": 5, "seed": 7, "draws": 3, "groups": 2, "each": 96, "together": 2}
SIZES |= {"stages": 2, "work": 1}
# By file, functions with their sizes that are not those above. That of sums aligns its stack.
QUICK = {
    "03_sum.cu": [("tree", {}), ("aligned", {})],
    "05_softmax.cu": [("softmax", {"version": 2})],
}
SLOW = {
    "11_softmax.cu": [("twice", {}), ("pieces", {}), ("spread", {}), ("split", {})],
    "01_copy.cu": [("run", {}), ("neighbours", {}), ("vector", {}), ("several", {})],
    "02_scale_bias_relu.cu": [("grid", {}), ("aligned", {})],
    "03_sum.cu": [("shuffle", {}), ("stages", {})],
    "04_variance.cu": [
        ("moments", {"version": 0}),
        ("moments", {"version": 1}),
        ("moments", {"version": 2}),
    ],
    "05_softmax.cu": [("softmax", {"version": 0}), ("softmax", {"version": 1})],
    "08_residual.cu": [("add", {}), ("dropped", {})],
    "10_cross_entropy.cu": [("naive", {"cols": 40}), ("online", {}), ("aligned", {})],
    "14_tiles.cu": [
        ("naive", {"rows": 128, "units": 128, "depth": 32}),
        ("tiles", {"rows": 128, "units": 128, "depth": 32}),
    ],
    "15_tensor_cores.cu": [
        ("direct", {"rows": 128, "units": 128, "depth": 64}),
        ("stages", {"rows": 128, "units": 128, "depth": 64}),
    ],
    "17_attention.cu": [("online", {"heads": 1, "tokens": 64, "causal": True})],
    "06_layer_norm.cu": [
        ("naive", {"cols": 40}),
        ("block", {"cols": 1024}),
        ("wide", {"cols": 1024}),
        ("aligned", {"cols": 1024}),
    ],
    "07_layer_norm_backward.cu": [("aligned", {"rows": 5})],
    "08_steps.cu": [("fused", {})],
    "09_dropout.cu": [
        ("read", {"n": 512}),
        ("state", {"n": 256}),
        ("element", {}),
        ("eight", {"n": 512}),
        ("aligned", {}),
        ("words", {"n": 40}),
        ("alone", {}),
    ],
    "11_cluster.cu": [("push", {}), ("pull", {})],
    "14_steps.cu": [("tiles", {})],
    "15_steps.cu": [("direct", {})],
    "16_steps.cu": [("ring", {"depth": 128})],
    "16_timeline.cu": [("timeline_of", {})],
    "17_steps.cu": [("online", {"keys": 16})],
    "18_eight_bits.cu": [
        ("quantize", {}),
        ("norm_quantize", {"rows": 9, "cols": 512}),
        ("naive", {"rows": 128, "units": 128, "depth": 128}),
        ("mma_sync", {"rows": 128, "units": 128, "depth": 128}),
    ],
    "18_eight_bits.cu alone": [("wgmma_sums", {"rows": 128, "units": 128, "depth": 128})],
    "primer_steps.cu": [("reads", {}), ("careful", {})],
}
# Descriptors of matrices hold the address of a tile in shared memory: each build has its own.
ADDRESSES = {"of_x", "of_w"}


def arguments(signature: str, sizes: dict) -> list[object]:
    torch.manual_seed(3)
    given = []
    for word in re.search(r"\((.*)\)", signature)[1].split(", "):
        pointed = re.match(r"(const )?(\w+)\* (\w+)$", word)
        if pointed is None:
            given.append((SIZES | sizes)[word.split()[-1]])
        elif not pointed[1]:
            given.append(torch.zeros(1 << 14, dtype=TYPES[pointed[2]]))
        elif TYPES[pointed[2]].is_floating_point:
            given.append(torch.randn(1 << 14).to(TYPES[pointed[2]]))
        else:
            given.append(torch.randint(0, 32, (1 << 14,)).to(TYPES[pointed[2]]))
    return given


def compared(place: Path, capfd, source: Path, calls: list[tuple[str, dict]]) -> dict[str, tuple]:
    """Traces functions of a source, and runs them with printf, twice; one build has all of these.

    Of each call how many values were compared, and which are unequal.
    """
    flags, include = ["-ffp-contract=off"], [source.parent]
    plain = instrumented(source, trace=True, flags=flags, include=include)
    given, traces = {}, {}
    for name, sizes in calls:
        call = f"{name} {sizes}"
        (signature,) = [it for it in plain.signatures() if f".{name}(" in it]
        given[call] = name, arguments(signature, sizes)
        traces[call] = lab.trace(getattr(plain, name), *given[call][1], steps=4000)
        assert not traces[call].is_cut
    text = with_printf(source.read_text(), list(traces.values()), source.name)
    said: dict[str, list[str]] = {call: [] for call in given}
    for filling in ("zero", "pattern"):
        folder = place / filling
        folder.mkdir()
        (folder / source.name).write_text(text)
        more = [*flags, f"-ftrivial-auto-var-init={filling}"]
        printing = jitload.load(folder / source.name, target="cpu", flags=more, include=include)
        for call, (name, values) in given.items():
            capfd.readouterr()
            getattr(printing, name)(*(it.clone() if hasattr(it, "clone") else it for it in values))
            ctypes.CDLL(None).fflush(None)
            said[call].append(capfd.readouterr().out)
            assert "@" in said[call][-1], f"{call}: no printf, of {traces[call].steps} steps"
    return {call: compare(it, source.name, *said[call]) for call, it in traces.items()}


@pytest.mark.parametrize(
    ("file", "calls"),
    [*QUICK.items(), *(pytest.param(*it, marks=pytest.mark.slow) for it in SLOW.items())],
    ids=[*QUICK, *(f"{file} slow" for file in SLOW)],
)
def test_every_value_is_what_printf_says(tmp_path, capfd, file, calls):
    for call, (count, unequal) in compared(
        tmp_path, capfd, LADDERS / file.split()[0], calls
    ).items():
        unequal = [it for it in unequal if it[2] not in ADDRESSES]
        print(f"{file} {call}: {count} values, {len(unequal)} unequal")
        assert not unequal, (call, unequal[:5])
        assert count > (44 if call.startswith("reads ") else 50), call  # which has 45
