"""What a trace shows of kernels of every kind, beside what printf says of the same statements."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
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
# File, function, sizes that are not those above.
QUICK = [
    ("03_sum.cu", "tree", {}),
    ("05_softmax.cu", "softmax", {"version": 2}),
    ("03_sum.cu", "aligned", {}),  # the function aligns its stack
]
SLOW = [
    ("11_softmax.cu", "twice", {}),
    ("01_copy.cu", "run", {}),
    ("01_copy.cu", "neighbours", {}),
    ("01_copy.cu", "vector", {}),
    ("01_copy.cu", "several", {}),
    ("02_scale_bias_relu.cu", "grid", {}),
    ("02_scale_bias_relu.cu", "aligned", {}),
    ("03_sum.cu", "shuffle", {}),
    ("03_sum.cu", "stages", {}),
    ("04_variance.cu", "moments", {"version": 0}),
    ("04_variance.cu", "moments", {"version": 1}),
    ("04_variance.cu", "moments", {"version": 2}),
    ("05_softmax.cu", "softmax", {"version": 0}),
    ("05_softmax.cu", "softmax", {"version": 1}),
    ("08_residual.cu", "add", {}),
    ("08_residual.cu", "dropped", {}),
    ("10_cross_entropy.cu", "naive", {"cols": 40}),
    ("10_cross_entropy.cu", "online", {}),
    ("10_cross_entropy.cu", "aligned", {}),
    ("11_softmax.cu", "pieces", {}),
    ("11_softmax.cu", "spread", {}),
    ("11_softmax.cu", "split", {}),
    ("14_tiles.cu", "naive", {"rows": 128, "units": 128, "depth": 32}),
    ("14_tiles.cu", "tiles", {"rows": 128, "units": 128, "depth": 32}),
    ("15_tensor_cores.cu", "direct", {"rows": 128, "units": 128, "depth": 64}),
    ("15_tensor_cores.cu", "stages", {"rows": 128, "units": 128, "depth": 64}),
    ("17_attention.cu", "online", {"heads": 1, "tokens": 64, "causal": True}),
    ("06_layer_norm.cu", "naive", {"cols": 40}),
    ("06_layer_norm.cu", "block", {"cols": 1024}),
    ("06_layer_norm.cu", "wide", {"cols": 1024}),
    ("06_layer_norm.cu", "aligned", {"cols": 1024}),
    ("07_layer_norm_backward.cu", "aligned", {"rows": 5}),
    ("08_steps.cu", "fused", {}),
    ("09_dropout.cu", "read", {"n": 512}),
    ("09_dropout.cu", "state", {"n": 256}),
    ("09_dropout.cu", "element", {}),
    ("09_dropout.cu", "eight", {"n": 512}),
    ("09_dropout.cu", "aligned", {}),
    ("09_dropout.cu", "words", {"n": 40}),
    ("09_dropout.cu", "alone", {}),
    ("11_cluster.cu", "push", {}),
    ("11_cluster.cu", "pull", {}),
    ("14_steps.cu", "tiles", {}),
    ("15_steps.cu", "direct", {}),
    ("16_steps.cu", "ring", {"depth": 128}),
    ("16_timeline.cu", "timeline_of", {}),
    ("17_steps.cu", "online", {"keys": 16}),
    ("18_eight_bits.cu", "quantize", {}),
    ("18_eight_bits.cu", "norm_quantize", {"rows": 9, "cols": 512}),
    ("18_eight_bits.cu", "naive", {"rows": 128, "units": 128, "depth": 128}),
    ("18_eight_bits.cu", "mma_sync", {"rows": 128, "units": 128, "depth": 128}),
    ("18_eight_bits.cu", "wgmma_sums", {"rows": 128, "units": 128, "depth": 128}),
    ("primer_steps.cu", "reads", {}),
    ("primer_steps.cu", "careful", {}),
]


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


def compared(place: Path, capfd, source: Path, name: str, sizes: dict) -> tuple[int, list]:
    """Traces a function of a source, and runs it with printf, twice."""
    flags, include = ["-ffp-contract=off"], [source.parent]
    plain = jitload.load(source, target="cpu", flags=flags, include=include)
    (signature,) = [it for it in plain.signatures() if f".{name}(" in it]
    given = arguments(signature, sizes)
    trace = lab.trace(getattr(plain, name), *given, steps=4000)
    assert not trace.is_cut
    text = with_printf(source.read_text(), trace, source.name)
    said = []
    for filling in ("zero", "pattern"):
        folder = place / filling
        folder.mkdir()
        (folder / source.name).write_text(text)
        more = [*flags, f"-ftrivial-auto-var-init={filling}"]
        printing = jitload.load(folder / source.name, target="cpu", flags=more, include=include)
        capfd.readouterr()
        getattr(printing, name)(*(it.clone() if hasattr(it, "clone") else it for it in given))
        ctypes.CDLL(None).fflush(None)
        said.append(capfd.readouterr().out)
    return compare(trace, source.name, *said)


@pytest.mark.parametrize(
    ("file", "name", "sizes"),
    [*QUICK, *(pytest.param(*it, marks=pytest.mark.slow) for it in SLOW)],
)
def test_every_value_is_what_printf_says(tmp_path, capfd, file, name, sizes):
    count, unequal = compared(tmp_path, capfd, LADDERS / file, name, sizes)
    print(f"{file} {name}: {count} values, {len(unequal)} unequal")
    assert not unequal, unequal[:5]
    assert count > (44 if name == "reads" else 50)  # which has 45
