"""Matrix products and attention for Blackwell (notebooks/ladders/20_*.cu), whole kernels."""

import pytest
import torch
from checked import written

import lab
from docs.programs.blackwell_ladder import ATTENTION, FOLDER, RUNGS, resources_of

# Of a float32 sum that is cut off once for each product of the tensor cores.
LIMIT = 2**-23
SHAPES = [(512, 256, 256), (1024, 512, 512)]


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_is_right(cache, rung):
    function = rung.load("cpu")
    for m, n, k in SHAPES:
        arguments, c, truth = rung.drawn(m, n, k)
        function(*arguments)
        assert (c.double() - truth).norm() <= LIMIT * k / 16 * truth.norm()


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_nothing_is_found_in_a_rung(cache, rung):
    function = rung.load("cpu")
    for order in (0, 1):
        arguments, *_ = rung.drawn(512, 256, 512)
        report = lab.check(function, *arguments, thread_order=order)
        assert report.findings.empty, str(report)


@pytest.mark.parametrize(("heads", "tokens", "gain"), [(1, 256, 1), (2, 512, 1), (1, 768, 8)])
def test_attention_is_as_exact_as_its_type(cache, heads, tokens, gain):
    arguments, y, truth = ATTENTION.drawn(heads, tokens, gain)
    ATTENTION.load("cpu")(*arguments)
    same_type = torch.nn.functional.scaled_dot_product_attention(*arguments[:3])
    assert (y.double() - truth).norm() <= 2 * (same_type.double() - truth).norm()


def test_nothing_is_found_in_attention(cache):
    arguments, *_ = ATTENTION.drawn(1, 512)
    for order in (0, 1):
        report = lab.check(ATTENTION.load("cpu"), *arguments, thread_order=order)
        assert report.findings.empty, str(report)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_sizes_that_are_no_multiples_are_refused(cache, rung):
    function = rung.load("cpu")
    arguments, c, _ = rung.drawn(512, 256, 256)
    for sizes in ((510, 256, 256), (512, 255, 256), (512, 256, 240)):
        with pytest.raises(RuntimeError, match="invalid argument"):
            function(*arguments[:-3], *sizes)
    assert c.isnan().all()


def test_attention_refuses_other_numbers_of_queries(cache):
    arguments, y, _ = ATTENTION.drawn(1, 512)
    *tensors, heads, _, scale = arguments
    with pytest.raises(RuntimeError, match="invalid argument"):
        ATTENTION.load("cpu")(*tensors, heads, 384, scale)
    assert y.isnan().all()


@pytest.mark.parametrize("file", sorted({rung.file for rung in [*RUNGS, ATTENTION]}))
def test_a_rung_compiles_for_a_gpu_without_spills(file):
    used = resources_of(file)
    assert used
    assert [(use.architecture, use.spilled) for use in used] == [("sm_100a", 0)] * len(used)


# A mistake in a kernel: the text that it is in, what goes, what comes in its place; and a kind of
# finding that tells of it.
FENCE = ('asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");', "")
SWIZZLE = ("2ull << 61", "4ull << 61")
LATER = ("accumulator.phase", "accumulator.phase ^ 1")
PHASES = {"deadlock", "tensor memory in use"}


def mistakes(rung):
    filled = "wait(&shared.tmem_full[accumulator.index], accumulator.phase);"
    if rung is ATTENTION:
        fence = ("__device__ void softmax", "fence_after_sync();", "")
        phase = (
            "__device__ void softmax",
            "s_full[tile], step % 2",
            "s_full[tile], (step + 1) % 2",
        )
    elif rung is RUNGS[0]:
        fence = ("wait(&shared.done, 0);", *FENCE)
        phase = ("wait(&shared.done, 0);", "done, 0", "done, 1")
    else:
        fence, phase = (filled, *FENCE), (filled, *LATER)
    return [(*fence, {"missing tcgen05 fence"}), (*phase, PHASES), ("", *SWIZZLE, {"swizzle"})]


def found_in(folder, rung, after: str, gone: str, instead: str, shape: tuple) -> lab.Report:
    """What the checker says of a rung with another piece of text."""
    text = (FOLDER / f"20_{rung.file}.cu").read_text()
    start = text.index(gone, text.index(after))
    text = text[:start] + instead + text[start + len(gone) :]
    function = getattr(written(folder / f"20_{rung.file}.cu", text), rung.name)
    arguments, *_ = rung.drawn(*shape)
    return lab.check(function, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3), ids=["fence", "phase", "descriptor"])
@pytest.mark.parametrize("rung", [*RUNGS[:5], ATTENTION], ids=lambda rung: rung.name)
def test_a_mistake_in_a_rung_is_found(cache, tmp_path, rung, number):
    *change, kinds = mistakes(rung)[number]
    shape = (1, 256) if rung is ATTENTION else (512, 256, 256)
    report = found_in(tmp_path, rung, *change, shape)
    assert kinds & set(report.findings["kind"]), str(report)


# More of them in the rungs with an epilogue, launch control and softmax: what goes, what comes.
TWO, CONTROL = RUNGS[1:3]
EMPTY = "wait(&shared.tmem_empty[accumulator.index], accumulator.phase ^ 1);"
BEFORE = 'asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n            arrive'
PROXY = '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
STORED = "wait_for_tmem_stores();\n        fence_before_sync();\n        arrive(&shared.p_full"
PLANTS = [
    (TWO, EMPTY, "", "tensor memory in use"),
    (TWO, BEFORE, "arrive", "missing tcgen05 fence"),
    (TWO, "tmem_empty[i], kEpilogueThreads", "tmem_empty[i], 1", "deadlock"),
    (TWO, "threadIdx.x < 32)\n        asm volatile(\"tcgen05.dealloc", "threadIdx.x < 0)\n"
     "        asm volatile(\"tcgen05.dealloc", "tensor memory kept"),
    (TWO, "wait(&shared.empty[stage.index], stage.phase ^ 1);", "", "asynchronous race"),
    (CONTROL, "wait(&shared.clc_empty[request.index], request.phase ^ 1);", "",
     "asynchronous race"),
    (CONTROL, "wait(&shared.clc_full[clc.index], clc.phase);", "", "asynchronous race"),
    (CONTROL, PROXY, "", "missing proxy fence"),
    (CONTROL, "clc_full[request.index], sizeof(uint4)", "clc_full[request.index], 8", "expect_tx"),
    (CONTROL, "request.advance();\n        } while (next_tile(shared, clc, tile));",
     "request.advance();\n            next_tile(shared, clc, tile);\n        } while (true);",
     "cluster launch control"),
    (ATTENTION, STORED, STORED.partition("\n")[2].lstrip(), "tensor memory in use"),
    (ATTENTION, "wait(&shared.p_full[tile], step % 2);", "", "tensor memory in use"),
    (ATTENTION, "wait(&shared.o_rescaled[tile], step % 2);", "", "wrong parity"),
    (ATTENTION, "wait(&shared.factors_full[tile], step % 2);", "", "uninitialised"),
    (ATTENTION, "wait(&shared.o_full[tile], (steps - 1) % 2);", "", "tensor memory in use"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "gone", "instead", "kind"),
    PLANTS,
    ids=[f"{i}-{rung.name}" for i, (rung, *_) in enumerate(PLANTS)],
)
def test_what_only_some_rungs_may_get_wrong_is_found(cache, tmp_path, rung, gone, instead, kind):
    shape = (1, 512) if rung is ATTENTION else (1024, 256, 256)
    report = found_in(tmp_path, rung, "", gone, instead, shape)
    assert kind in set(report.findings["kind"]), str(report)
