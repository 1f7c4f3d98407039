"""The short versions that chapters explain before the ops' own kernels, or in their place."""

import math
import re
import subprocess
import time

import pytest
import torch

import jitload
import lab
import reference
from notebooks.rates import gpu_clock, rate
from toolchain import machine

BOOK = jitload.KERNELS.parent / "notebooks"
ROWS = 37
DEVICE = jitload.device()


def assert_near(results, truths):
    for result, truth in zip(results, truths, strict=True):
        assert (result - truth).abs().max() < 1e-5 * truth.abs().max().clamp(min=1)


def draw(*shape):
    generator = torch.Generator(DEVICE).manual_seed(sum(shape))
    return torch.randn(shape, device=DEVICE, generator=generator)


@pytest.mark.parametrize("version", ["run", "neighbours", "stride", "stride_beside", "unrolled"])
@pytest.mark.parametrize("count", [1, 1000, 2**17 + 3])
def test_copies_of_any_length(version, count):
    x = draw(count)
    y = torch.full((count + 8,), 7.0, device=DEVICE)
    getattr(lab.ladder("01_copy"), version)(x, y, count)
    assert torch.equal(y[:count], x)
    assert (y[count:] == 7).all()


@pytest.mark.parametrize("version", ["naive", "block", "wide", "aligned"])
@pytest.mark.parametrize("cols", [1024, 3072])
def test_layer_norm(cols, version):
    x, y, (weight, bias) = 3 + draw(ROWS, cols), draw(ROWS, cols), draw(2, cols)
    call = getattr(lab.ladder("06_layer_norm"), version)
    call(x, weight, bias, y, ROWS, cols, 1e-5)
    truth = reference.layer_norm(x.double(), weight.double(), bias.double(), 1e-5)
    assert_near([y], [truth])
    if version != "naive":
        for wrong in (cols - 32, cols - 4, 32 * 1024):
            with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
                call(x, weight, bias, y, ROWS, wrong, 1e-5)


@pytest.mark.parametrize("version", ["naive", "block"])
@pytest.mark.parametrize("cols", [256, 768])
def test_layer_norm_backward_in_several_readings(cols, version):
    (g, x), (weight, bias) = draw(2, ROWS, cols), draw(2, cols)
    leaves = [each.double().requires_grad_() for each in (x, weight, bias)]
    truths = torch.autograd.grad(reference.layer_norm(*leaves), leaves, g.double())
    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + 1e-5).rsqrt()
    results = torch.empty_like(x), *draw(2, cols)
    partials = (*draw(2, 5, cols), 5) if version == "block" else ()
    call = getattr(lab.ladder("07_layer_norm_backward"), version)
    call(g, x, weight, mean, rstd, *results, *partials, ROWS, cols)
    assert_near(results, truths)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("cols", [256, 1024])
def test_layer_norm_backward(cols, at_once):
    (g, x), (weight, bias), blocks = draw(2, ROWS, cols), draw(2, cols), 5
    leaves = [each.double().requires_grad_() for each in (x, weight, bias)]
    truths = torch.autograd.grad(reference.layer_norm(*leaves), leaves, g.double())

    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + 1e-5).rsqrt()
    dx, (dweight, dbias) = torch.empty_like(x), draw(2, cols)
    partials = draw(2, blocks, cols)
    call = lab.ladder("07_layer_norm_backward").aligned
    given = g, x, weight, mean, rstd, dx, dweight, dbias, *partials, at_once, blocks
    call(*given, ROWS, cols)
    assert_near((dx, dweight, dbias), truths)
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(*given, ROWS, cols - 8)


@pytest.mark.parametrize("cols", [256, 2048])
def test_norms_of_a_sum(cols):
    x, residual, y, s = draw(4, ROWS, cols)
    weight, bias = draw(2, cols)
    doubles = [each.double() for each in (x, residual, weight, bias)]

    call = lab.ladder("08_residual").aligned
    call(x, residual, weight, y, s, ROWS, cols, 1e-6)
    assert_near((y, s), reference.rms_norm(doubles[0], doubles[2], doubles[1]))
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(x, residual, weight, y, s, ROWS, cols - 8, 1e-6)

    call = lab.ladder("09_dropout").aligned
    given = x, residual, weight, bias, y, s, torch.tensor(7, device=DEVICE), 3, 0.3
    call(*given, ROWS, cols, 1e-5)
    assert_near((y, s), reference.dropout_layer_norm(*doubles, 0.3, seed=7, offset=3))
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(*given, ROWS, cols - 8, 1e-5)


@pytest.mark.parametrize("blocks", [1, 5, ROWS + 3])
def test_backward_of_the_norm_of_a_sum(blocks):
    (g, gs, s), weight = draw(3, ROWS, 64), draw(64)
    dx, partial = torch.full_like(s, torch.nan), torch.full((blocks, 64), torch.nan, device=DEVICE)
    rstd = (s.square().mean(-1) + 1e-6).rsqrt()
    lab.ladder("08_backward").fused(g, gs, s, weight, rstd, dx, partial, ROWS, blocks)
    leaves = s.double().requires_grad_(), weight.double().requires_grad_()
    truths = torch.autograd.grad(reference.rms_norm(*leaves), leaves, g.double())
    assert_near([dx, partial.sum(0)], [truths[0] + gs, truths[1]])


@pytest.mark.parametrize("cols", [4, 60, 128, 1000])
def test_cross_entropy(cols):
    x, loss = 5 * draw(ROWS, cols), draw(ROWS)
    target = torch.arange(ROWS, device=DEVICE) % cols
    ladder, log_p = lab.ladder("10_cross_entropy"), torch.empty_like(x)
    leaf = x.double().requires_grad_()
    truth = reference.cross_entropy(leaf, target, "none")
    for call, *more in [
        (ladder.written, log_p),
        (ladder.naive,),
        (ladder.online,),
        (ladder.aligned,),
    ]:
        call(x, target, *more, loss.fill_(torch.nan), ROWS, cols)
        assert_near([loss], [truth])
    assert_near([log_p], [leaf.log_softmax(-1)])

    g, most = draw(ROWS), x.amax(-1)
    rest = most, (x - most[:, None]).exp().sum(-1), torch.empty_like(x), ROWS
    (wanted,) = torch.autograd.grad(truth, leaf, g.double())
    for warps in (1, 2, 4, 8):
        rest[2].fill_(torch.nan)
        ladder.backward(g, x, target, *rest, cols, warps)
        assert_near([rest[2]], [wanted])
    for call, *given in [
        (ladder.aligned, x, target, loss, ROWS, cols - 1),
        (ladder.backward, g, x, target, *rest, cols - 1, 1),
        (ladder.backward, g, x, target, *rest, cols, 3),
    ]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(*given)


@pytest.mark.parametrize(("cols", "blocks"), [(4, 1), (4096, 1), (32768, 1), (4096, 2), (65536, 8)])
def test_softmax_of_wide_rows(cols, blocks):
    x, y = 5 * draw(ROWS, cols), draw(ROWS, cols)
    x[1, cols // 2 :] = -torch.inf  # a block may have nothing else
    call = lab.ladder("11_softmax").spread
    for wrong in [(cols - 1, blocks), (cols, 3), (cols, 16)]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(x, y, ROWS, *wrong, 256)
    if blocks > 1 and DEVICE.type == "cuda" and torch.cuda.get_device_capability() < (9, 0):
        with pytest.raises(RuntimeError, match="cudaErrorNotSupported"):
            call(x, y, ROWS, cols, blocks, 256)
        return
    call(x, y, ROWS, cols, blocks, 256)
    assert_near([y], [x.double().softmax(-1)])


@pytest.mark.parametrize("version", ["naive", "tiles", "column", "registers", "vectors", "ahead"])
@pytest.mark.parametrize("shape", [(128, 128, 32), (256, 128, 96)])
def test_products(version, shape):
    rows, units, depth = shape
    x, w, y = draw(rows, depth), draw(units, depth), draw(rows, units)
    call = getattr(lab.ladder("14_tiles"), version)
    strides = (depth, 1) if version == "naive" else ()
    call(x, w, y, *shape, *strides)
    assert_near([y], [x.double() @ w.double().T])
    for wrong in [(rows - 8, units, depth), (rows, units - 32, depth), (rows, units, depth - 16)]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(x, w, y, *wrong, *strides)


@pytest.mark.parametrize("version", ["direct", "straight", "swizzle", "stages"])
@pytest.mark.parametrize("shape", [(128, 128, 64), (256, 128, 320)])
def test_products_by_tensor_cores(version, shape):
    if DEVICE.type == "cuda" and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no mma.sync of bfloat16")
    rows, units, depth = shape
    x, w, y = draw(rows, depth).bfloat16(), draw(units, depth).bfloat16(), draw(rows, units)
    call = getattr(lab.ladder("15_tensor_cores"), version)
    call(x, w, y, *shape)
    assert_near([y], [x.double() @ w.double().T])
    for wrong in [(rows - 8, units, depth), (rows, units - 32, depth), (rows, units, depth - 16)]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(x, w, y, *wrong)


# And how many rows of tiles are taken before the next column.
HOPPER = dict.fromkeys(("one_stage", "four_stages", "specialized"), ())
HOPPER |= dict.fromkeys(("persistent", "multicast"), (2,))


@pytest.mark.parametrize("version", HOPPER)
def test_products_by_wgmma(version):
    """A step, fewer steps than stages, a ring that is used twice; several tiles for a block."""
    if DEVICE.type == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("this GPU has no wgmma")
    call = getattr(lab.ladder("16_hopper"), version)
    shapes = [(256, 256, 64), (256, 512, 192), (768, 256, 576)]
    shapes += [(256, 140 * 256, 64)] if HOPPER[version] else []  # more tiles than multiprocessors
    for m, n, k in shapes:
        a, b = draw(m, k).bfloat16(), draw(n, k).bfloat16()
        c = torch.full((m, n), torch.nan, device=DEVICE).bfloat16()
        call(a, b, c, m, n, k, *HOPPER[version])
        truth, theirs = a.double() @ b.double().T, (a @ b.T).double()
        assert (c.double() - truth).norm() < 1.01 * (theirs - truth).norm(), (m, n, k)
    for wrong in ((128, 256, 64), (256, 128, 64), (256, 256, 32), (0, 256, 64)):
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(a, b, c, *wrong, *HOPPER[version])
    if HOPPER[version]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(a, b, c, 256, 256, 64, 0)


@pytest.mark.parametrize("version", HOPPER)
def test_products_by_wgmma_wait_for_all_that_they_use(version):
    call = getattr(jitload.load(BOOK / "ladders/16_hopper.cu", target="cpu"), version)
    a, b = torch.randn(256, 320).bfloat16(), torch.randn(256, 320).bfloat16()
    given = a, b, torch.empty(256, 256).bfloat16(), 256, 256, 320, *HOPPER[version]
    for order in (0, 1):
        report = lab.check(call, *given, traffic=False, thread_order=order)
        assert report.findings.empty, report


def test_products_by_wgmma_keep_their_accumulators_in_registers(tmp_path):
    command = [machine.cuda_tool("nvcc"), "-arch=sm_90a", "-std=c++17", "-cubin", "-Xptxas", "-v"]
    command += [BOOK / "ladders/16_hopper.cu", "-o", tmp_path / "out.cubin"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert done.stderr.count("0 bytes spill stores") == len(HOPPER)
    assert "serialized" not in done.stderr  # wgmmas, one after the other
    registers = [int(it) for it in re.findall(r"Used (\d+) registers", done.stderr)]
    assert max(registers) <= 168  # all that 384 threads can have


def test_stamps_count_the_time_and_the_cycles_between_them():
    log = torch.zeros(2, 3, 2, dtype=torch.int64, device=DEVICE)
    before = time.time_ns()
    for stamps in log:
        lab.ladder("clocks").stamp(stamps, 2)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        time.sleep(0.02)
    took = time.time_ns() - before
    assert not log[:, 2:].any()  # no room for more
    if DEVICE.type == "cpu":  # on a GPU the two blocks may be on any multiprocessors
        nanoseconds, cycles = (log[1] - log[0])[:2].unbind(1)
        assert (nanoseconds >= 2e7).all()
        assert (nanoseconds <= took).all()
        assert (cycles > 0).all()


def test_a_rate_has_the_clock_of_its_calls():
    x, calls = torch.randn(1024, 1024, device=DEVICE), []
    tflops, mhz = rate(lambda: calls.append(x.square().sum()), x.numel())
    if DEVICE.type == "cpu":
        assert len(calls) == 1
        assert math.isnan(tflops)
        assert math.isnan(mhz)
    else:
        highest = gpu_clock("clocks.max.sm")
        assert 0.3 * highest < mhz < 1.02 * highest


@pytest.mark.parametrize(("groups", "each"), [(0, 128), (5, 128), (3, 1000), (1, 40_000)])
def test_quantize(groups, each):
    x = 100 * draw(groups, each)
    q, scales = torch.empty_like(x, dtype=torch.uint8), draw(groups)
    lab.ladder("18_eight_bits").quantize(x, q, scales, groups, each)
    # Not on a GPU: there PyTorch divides by 448 as if it multiplied by 1 / 448.
    wanted, of_rows = reference.quantize(x.cpu())
    assert torch.equal(q.cpu(), wanted.view(torch.uint8))
    assert torch.equal(scales.cpu(), of_rows[:, 0])


@pytest.mark.parametrize(("rows", "cols"), [(0, 256), (5, 256), (3, 4096), (2, 8192)])
def test_norm_and_quantize(rows, cols):
    x, weight, scales = 100 * draw(rows, cols).bfloat16(), draw(cols).bfloat16(), draw(rows)
    q, call = torch.empty_like(x, dtype=torch.uint8), lab.ladder("18_eight_bits").norm_quantize
    call(x, weight, q, scales, rows, cols, 1e-6)
    y = reference.rms_norm(x.double(), weight.double(), eps=1e-6).bfloat16()
    wanted, of_rows = reference.quantize(y.cpu())
    found = q.cpu().view(torch.float8_e4m3fn).float()
    assert_near([scales.cpu()], [of_rows[:, 0]]) if rows else None
    assert ((found - wanted.float()).abs() <= wanted.float().abs() / 8 + 2**-9).all()
    assert (found == wanted.float()).double().mean() > 0.98 if rows else True
    for wrong in (cols - 8, 8448):
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(x, weight, q, scales, rows, wrong, 1e-6)


CAPABILITY = torch.cuda.get_device_capability() if DEVICE.type == "cuda" else (9, 0)


@pytest.mark.parametrize("version", ["naive", "mma_sync", "wgmma_sums"])
@pytest.mark.parametrize("shape", [(64, 128, 128), (128, 256, 640)])
def test_products_of_bytes(version, shape):
    if version == "mma_sync" and CAPABILITY < (8, 9):
        pytest.skip("this GPU has no mma.sync of e4m3")
    if version == "wgmma_sums" and CAPABILITY != (9, 0):
        pytest.skip("this GPU has no wgmma")
    rows, units, depth = shape
    x, w = (draw(size, depth).to(torch.float8_e4m3fn) for size in (rows, units))
    given, y = (x.view(torch.uint8), w.view(torch.uint8)), draw(rows, units)
    call, truth = getattr(lab.ladder("18_eight_bits"), version), x.double() @ w.double().T
    for together in (1, 2, 100) if version == "wgmma_sums" else (None,):
        more = () if together is None else (together,)
        call(*given, y, *shape, *more)
        if more:  # of a sum, 13 bits behind the largest exponent are kept
            assert (y - truth).abs().max() < 2e-3 * truth.abs().max()
        else:
            assert_near([y], [truth])
    for wrong in [(rows - 8, units, depth), (rows, units - 32, depth), (rows, units, depth - 16)]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(*given, y, *wrong, *more)


@pytest.mark.skipif(CAPABILITY != (9, 0), reason="only Hopper sums products of bytes so")
def test_sums_of_bytes_that_tensor_cores_stop_adding_up():
    ones = torch.ones(128, 32768, device=DEVICE).to(torch.float8_e4m3fn).view(torch.uint8)
    y = draw(64, 128)
    for together, wanted in [(256, 16384), (1, 32768)]:
        lab.ladder("18_eight_bits").wgmma_sums(ones[:64], ones, y, 64, 128, 32768, together)
        assert (y == wanted).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "tokens"), [(0, 32), (2, 32), (1, 96)])
def test_attention(heads, tokens, causal):
    q, k, v = draw(3, heads, tokens, 64)
    truth = reference.attention(q.double(), k.double(), v.double(), causal=causal)
    ways, y, scores = (
        lab.ladder("17_attention"),
        draw(heads, tokens, 64),
        draw(heads, tokens, tokens),
    )
    ways.formula(q, k, v, scores, y, heads, tokens, causal)
    assert_near([y], [truth]) if heads else None
    ways.online(q, k, v, y.fill_(torch.nan), heads, tokens, causal)
    assert_near([y], [truth]) if heads else None
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        ways.online(q, k, v, y, heads, tokens - 8, causal)


def assert_as_near_as_pytorch(results, leaves, g=None):
    """y, or with g the gradients: at most twice the error of the formula in bfloat16."""

    def of_formula(dtype):
        given = [each.to(dtype, copy=True).requires_grad_(g is not None) for each in leaves]
        y = reference.attention(*given)
        return [y] if g is None else torch.autograd.grad(y, given, g.to(dtype))

    truths, plain = of_formula(torch.float64), of_formula(torch.bfloat16)
    for result, truth, rounded in zip(results, truths, plain, strict=True):
        assert (result - truth).abs().max() <= 2 * (rounded - truth).abs().max()


@pytest.mark.parametrize("tokens", [64, 192])
@pytest.mark.parametrize("cols", [64, 128])
def test_attention_by_mma_sync(cols, tokens):
    q, k, v = (4 * draw(3, 2, tokens, cols)).bfloat16()
    y, lse = torch.full_like(q, torch.nan), draw(2, tokens)
    call = lab.ladder("17_attention_mma").mma_sync
    call(q, k, v, y, lse, 2, tokens, cols)
    assert_as_near_as_pytorch([y], [q, k, v])
    scores = q.double() @ k.double().mT / cols**0.5
    assert_near([lse], [scores.logsumexp(-1) / math.log(2)])
    for wrong in [(tokens - 32, cols), (tokens, 32)]:
        with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
            call(q, k, v, y, lse, 2, *wrong)


@pytest.mark.skipif(CAPABILITY != (9, 0), reason="wgmma is Hopper's alone")
@pytest.mark.parametrize("version", ["serial", "pingpong", "overlap"])
@pytest.mark.parametrize("tokens", [128, 640])
def test_attention_by_wgmma(version, tokens):
    q, k, v = (4 * draw(3, 2, tokens, 128)).bfloat16()
    y = torch.full_like(q, torch.nan)
    clocks = torch.zeros(2, 64, 4, dtype=torch.int64, device=DEVICE)
    call = getattr(lab.ladder("17_attention_hopper"), version)
    call(q, k, v, y, 2, tokens, clocks)
    assert_as_near_as_pytorch([y], [q, k, v])
    assert (clocks[:, tokens // 128 + 1 :] == 0).all()
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(q, k, v, y, 2, tokens - 64, clocks)


@pytest.mark.parametrize("version", ["two_loops", "atomics"])
@pytest.mark.parametrize("tokens", [64, 192])
def test_attention_backward(version, tokens):
    q, k, v, g = (2 * draw(4, 2, tokens, 64)).bfloat16()
    y, lse = torch.empty_like(q), draw(2, tokens)
    lab.ladder("17_attention_mma").mma_sync(q, k, v, y, lse, 2, tokens, 64)
    delta = (g.float() * y.float()).sum(-1)
    dq, dk, dv = (torch.zeros_like(q) for _ in range(3))
    if version == "atomics":
        dq = dq.float()
    given = q, k, v, g, lse, delta, dq, dk, dv, 2
    call = getattr(lab.ladder("17_attention_backward"), version)
    call(*given, tokens)
    assert_as_near_as_pytorch([dq, dk, dv], [q, k, v], g)
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(*given, tokens - 32)


@pytest.mark.parametrize("splits", [1, 3, 20])
def test_attention_of_a_paged_cache(splits):
    heads, pages, lengths = 8, 12, torch.tensor([0, 1, 33, 192], dtype=torch.int32, device=DEVICE)
    table = torch.randperm(4 * pages, generator=torch.Generator().manual_seed(0))
    table = table.view(4, pages).int().to(DEVICE)
    k, v = draw(2, 4 * pages, 16, heads, 64).bfloat16()
    q, partials = draw(4, heads, 64).bfloat16(), draw(4, heads, splits, 66)
    y, sizes = torch.full_like(q, torch.nan), (4, heads, pages, splits)
    call = lab.ladder("17_attention_decode").decode_paged
    call(q, k, v, table, lengths, partials, y, *sizes)
    given = q[:, :, None], k, v
    truth = reference.attention_decode(*(it.double() for it in given), lengths, table)
    theirs = reference.attention_decode(*given, lengths, table)
    assert (y[:, :, None] - truth).abs().max() <= 2 * (theirs - truth).abs().max()
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue"):
        call(q, k, v, table, lengths, partials, y, 4, heads - 2, pages, splits)


def test_a_cluster_pushes_or_pulls_and_stays():
    ways, x, y = lab.ladder("11_cluster"), 3 * torch.randn(128), torch.empty(128)
    for call in (ways.push, ways.pull_and_stay):
        report = lab.check(call, x, y)
        assert report.findings.empty, report
    assert lab.check(ways.pull, x, y).findings.kind.tolist() == ["ended block"]
    trace = lab.trace(ways.push, x, y, block=[0, 1, 2, 3])
    assert trace.kernel == "softmax_push"  # launched by a pointer
    parts = [it for it in trace.regions if it["name"] == "parts"]
    assert sorted(it["block"] for it in parts) == [0, 1, 2, 3]
    for block in range(4):
        mine = trace.values(32 * block, trace.steps - 1)["mine"]
        quarter = x[32 * block :][:32]
        assert mine["most"] == quarter.max().item()


def test_the_kernels_to_step_through_are_right():
    x, w = torch.randint(-2, 3, (2, 64, 256)).bfloat16()
    for call, rows, units, depth in (
        (lab.ladder("16_steps").ring, 64, 16, 256),
        (lab.ladder("15_steps").direct, 16, 8, 48),
    ):
        given = x[:rows, :depth].contiguous(), w[:units, :depth].contiguous()
        y, truth = torch.empty(rows, units), given[0].float() @ given[1].float().T
        report = lab.check(call, *given, y, depth)
        assert report.findings.empty, report
        call(*(each.to(DEVICE) for each in given), result := y.to(DEVICE), depth)
        assert torch.equal(result.cpu(), truth)
    trace = lab.trace(lab.ladder("16_steps").ring, x, w[:16], torch.empty(64, 16), 256)
    assert not trace.is_cut  # a shared array of bfloat16 does not take a step for each element
    assert not any(name.startswith("simulator_") for name, _, _ in trace.variables)

    a, b, result = torch.ones(8, 16), torch.rand(8, 16), torch.empty(8, 8)
    report = lab.check(lab.ladder("14_steps").tiles, a, b, result, 16)
    assert report.findings.empty, report
    q, keys, values = torch.randn(4, 8), torch.randn(24, 8), torch.randn(24, 8)
    result = torch.empty(4, 8).to(DEVICE)
    lab.ladder("17_steps").online(*(it.to(DEVICE) for it in (q, keys, values)), result, 24)
    assert_near([result.cpu()], [(q @ keys.T).softmax(-1).double() @ values.double()])
    copied = torch.zeros(3, 32).to(DEVICE)
    lab.ladder("01_steps").ways(q.flatten().to(DEVICE), *copied)
    assert (copied.cpu() == q.flatten()).all()
    x, result = torch.randn(32, 32).to(DEVICE), torch.empty(32).to(DEVICE)
    for version in ("by_thread", "by_warp"):
        getattr(lab.ladder("06_steps"), version)(x, result.fill_(torch.nan))
        assert_near([result], [x.double().mean(-1)])
    lab.ladder("07_steps").columns(x[:8], result)
    assert_near([result], [x[:8].double().sum(0)])
    logits, dx, target = x.flatten()[:96].contiguous(), torch.empty(96).to(DEVICE), 70
    loss, hit = torch.empty(1).to(DEVICE), torch.tensor([target]).to(DEVICE)
    lab.ladder("10_steps").both(logits, hit, loss, dx)
    leaf = logits.double().requires_grad_()
    truth = reference.cross_entropy(leaf[None], hit)
    assert_near([loss, dx], [truth[None], *torch.autograd.grad(truth, leaf)])
    row, s, y = torch.randn(2, 64), torch.empty(64).to(DEVICE), torch.empty(64).to(DEVICE)
    lab.ladder("08_steps").fused(*row.to(DEVICE), s, y)
    assert_near(
        [y.cpu()], [reference.rms_norm(row.sum(0).double(), torch.ones(64).double(), eps=0.0)]
    )


def test_the_smallest_product_in_tensor_memory_is_right():
    """On the simulator, whatever GPU is there."""
    call = jitload.load(BOOK / "ladders/20_steps.cu", target="cpu").tile
    generator = torch.Generator().manual_seed(0)
    for depth in (64, 192):
        a, b = (torch.randint(-2, 3, (n, depth), generator=generator).bfloat16() for n in (128, 16))
        c = torch.full((128, 16), torch.nan)
        for order in (0, 1):
            report = lab.check(call, a, b, c, depth, thread_order=order)
            assert report.findings.empty, report
        call(a, b, c, depth)
        assert torch.equal(c.double(), a.double() @ b.double().T)


SHORT = {"sm_90a": ["ladders/16_steps.cu", "solutions/16_*.cu"],
         "sm_100a": ["ladders/20_steps.cu", "solutions/20_*.cu"]}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "path"),
    [(arch, path) for arch, names in SHORT.items() for it in names for path in BOOK.glob(it)],
    ids=lambda it: getattr(it, "stem", it),
)
def test_short_kernels_of_one_architecture_compile_for_it(architecture, path, tmp_path):
    command = [machine.cuda_tool("nvcc"), f"-arch={architecture}", "-std=c++17", "-cubin"]
    command += ["-DPLAYGROUND_CUDA=1", "-I", jitload.KERNELS / "include"]
    command += [path, "-o", tmp_path / "out.cubin"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
