"""cuBLAS and cuBLASLt on the CPU, against torch in double precision and what cuBLAS documents."""

import itertools
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import jitload
import lab
from jitloader import runtime
from toolchain.errors import CompileError

SOURCE = Path(__file__).parent / "kernels/cublas.cu"
DTYPES = {"S": torch.float32, "D": torch.float64, "C": torch.complex64, "Z": torch.complex128}
WIDE = {True: torch.complex128, False: torch.float64}
N, T, C = 0, 1, 2  # operations
PAIRS = list(itertools.product((N, T, C), repeat=2))
LEFT, RIGHT, LOWER, UPPER, GENERAL, UNIT = 0, 1, 0, 1, 0, 1
OK, NOT_INITIALIZED, INVALID, NOT_SUPPORTED = 0, 1, 7, 15
R32, R64, R16, R8I, C32, C64, R32I, RBF, E4M3, E5M2 = 0, 1, 2, 3, 4, 5, 10, 14, 28, 29
COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I = 64, 68, 70, 72
TYPES = {
    R32: torch.float32,
    R64: torch.float64,
    R16: torch.float16,
    RBF: torch.bfloat16,
    R8I: torch.int8,
    R32I: torch.int32,
    C32: torch.complex64,
    C64: torch.complex128,
    E4M3: torch.float8_e4m3fn,
    E5M2: torch.float8_e5m2,
}


@pytest.fixture(scope="module")
def blas():
    return jitload.load(SOURCE, name="test_cublas", target="cpu")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def columns(matrix: torch.Tensor, ld: int) -> torch.Tensor:
    """The memory of a matrix, or of a batch, column by column; between columns lie NaNs."""
    *batch, rows, cols = matrix.shape
    filled = -1 if not matrix.dtype.is_floating_point and not matrix.is_complex() else math.nan
    memory = torch.full((*batch, cols, ld), filled).to(matrix.dtype)
    memory[..., :rows] = matrix.mT
    return memory


def rows_of(memory: torch.Tensor, rows: int) -> torch.Tensor:
    return memory[..., :rows].mT


def op(matrix: torch.Tensor, operation: int) -> torch.Tensor:
    return {T: matrix.mT, C: matrix.mH}.get(operation, matrix)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype in (torch.int8, torch.int32):
        return torch.randint(-100, 100, shape, dtype=dtype)
    wide = torch.randn(*shape, dtype=WIDE[dtype.is_complex])
    return wide.to(dtype)


def stored(rows: int, cols: int, operation: int, dtype: torch.dtype, *batch: int) -> torch.Tensor:
    """The matrix whose op is [rows, cols]."""
    return random(*batch, *((rows, cols) if operation == N else (cols, rows)), dtype=dtype)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(WIDE[x.is_complex()])


def near(got: torch.Tensor, wanted: torch.Tensor, k: int = 1) -> None:
    """Within the rounding of the result, and of a sum of k products in its type, or in float."""
    digits = torch.finfo(got.dtype).eps
    sums = min(digits, torch.finfo(torch.float32).eps) * max(k, 1)
    scale = wanted.abs().max().item() if wanted.numel() else 1.0
    torch.testing.assert_close(
        wide(got), wide(wanted), rtol=digits, atol=4 * sums * max(scale, 1.0), equal_nan=True
    )


def call(blas: jitload.Kernel, name: str, *arguments: object) -> None:
    assert getattr(blas, f"run_{name}")(*arguments) == OK, name


# ---- gemm


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize(("opa", "opb"), PAIRS)
def test_gemm_of_every_type_and_transpose(blas, letter, opa, opb):
    m, n, k = 7, 5, 11
    dtype = DTYPES[letter]
    a, b, c = stored(m, k, opa, dtype), stored(k, n, opb, dtype), random(m, n, dtype=dtype)
    alpha, beta = random(1, dtype=dtype), random(1, dtype=dtype)
    ca, cb, cc = columns(a, a.shape[0] + 3), columns(b, b.shape[0] + 1), columns(c, m + 2)
    call(
        *(blas, f"{letter}gemm", opa, opb, m, n, k, alpha, ca, ca.shape[-1], cb, cb.shape[-1]),
        *(beta, cc, cc.shape[-1]),
    )
    wanted = wide(alpha) * (op(wide(a), opa) @ op(wide(b), opb)) + wide(beta) * wide(c)
    near(rows_of(cc, m), wanted, k)
    assert cc[:, m:].isnan().all()  # what lies between the columns is nobody's


@pytest.mark.parametrize("letter", DTYPES)
def test_a_large_gemm(blas, letter):
    m, n, k = 129, 65, 200
    dtype = DTYPES[letter]
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    c, one, zero = (
        random(m, n, dtype=dtype),
        torch.ones(1, dtype=dtype),
        torch.zeros(1, dtype=dtype),
    )
    cc = columns(c, m)
    call(blas, f"{letter}gemm", N, N, m, n, k, one, columns(a, m), m, columns(b, k), k, zero, cc, m)
    near(rows_of(cc, m), wide(a) @ wide(b), k)


@pytest.mark.parametrize("letter", [*DTYPES, "H"])
def test_beta_0_does_not_read_c_and_alpha_0_reads_neither_a_nor_b(blas, letter):
    dtype = DTYPES.get(letter, torch.float16)
    a, b = random(4, 4, dtype=dtype), random(4, 4, dtype=dtype)
    one, zero = torch.ones(1, dtype=dtype), torch.zeros(1, dtype=dtype)
    c = torch.full((4, 4), math.nan, dtype=dtype)
    call(blas, f"{letter}gemm", N, N, 4, 4, 4, one, columns(a, 4), 4, columns(b, 4), 4, zero, c, 4)
    near(c.mT, wide(a) @ wide(b), 4)
    nans, c = torch.full((4, 4), math.nan, dtype=dtype), random(4, 4, dtype=dtype)
    before = c.clone()
    call(blas, f"{letter}gemm", N, N, 4, 4, 4, zero, nans, 4, nans, 4, one, c, 4)
    assert torch.equal(c, before)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0), (1, 1, 1)])
@pytest.mark.parametrize("letter", [*DTYPES, "H"])
def test_gemm_of_empty_and_tiny_matrices(blas, letter, m, n, k):
    dtype = DTYPES.get(letter, torch.float16)
    a, b, c = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(m, n, dtype=dtype)
    alpha, beta = torch.full((1,), 2, dtype=dtype), torch.full((1,), -0.5, dtype=dtype)
    memory = [columns(matrix, max(1, matrix.shape[0])) for matrix in (a, b, c)]
    lda, ldb, ldc = (max(1, it.shape[-1]) for it in memory)
    call(
        blas, f"{letter}gemm", N, N, m, n, k, alpha, memory[0], lda, memory[1], ldb, beta,
        memory[2], ldc,
    )  # fmt: skip
    near(rows_of(memory[2], m), 2 * wide(a) @ wide(b) - 0.5 * wide(c))


@pytest.mark.parametrize("function", ["gemmStridedBatched", "gemmBatched"])
@pytest.mark.parametrize("letter", [*DTYPES, "H"])
def test_batches(blas, letter, function):
    m, n, k, batches = 9, 6, 8, 3
    dtype = DTYPES.get(letter, torch.float16)
    a, b = stored(m, k, T, dtype, batches), random(k, n, dtype=dtype)  # B is the same in all
    c, alpha, beta = (
        random(batches, m, n, dtype=dtype),
        random(1, dtype=dtype),
        random(1, dtype=dtype),
    )
    ca, cb, cc = columns(a, k + 1), columns(b, k), columns(c, m + 4)
    call(
        blas, f"{letter}{function}", T, N, m, n, k, alpha, ca, k + 1, (k + 1) * m, cb, k, 0, beta,
        cc, m + 4, (m + 4) * n, batches,
    )  # fmt: skip
    near(rows_of(cc, m), wide(alpha) * (wide(a).mT @ wide(b)) + wide(beta) * wide(c), k)


def test_a_batch_whose_results_lie_upon_each_other_is_worked_off_in_order(blas):
    a, b = random(3, 4, 4), random(3, 4, 4)
    one, c = torch.ones(1), random(4, 4)
    cc = columns(c, 4)
    ca, cb = columns(a, 4), columns(b, 4)
    call(blas, "SgemmStridedBatched", N, N, 4, 4, 4, one, ca, 4, 16, cb, 4, 16, one, cc, 4, 0, 3)
    near(rows_of(cc, 4), wide(c) + (wide(a) @ wide(b)).sum(0), 16)


@pytest.mark.parametrize(
    ("atype", "ctype", "compute"),
    [
        (R32, R32, COMPUTE_32F),
        (R16, R16, COMPUTE_32F),
        (R16, R16, COMPUTE_16F),
        (R16, R32, COMPUTE_32F),
        (RBF, RBF, COMPUTE_32F),
        (RBF, R32, COMPUTE_32F),
        (R64, R64, COMPUTE_64F),
        (R8I, R32, COMPUTE_32F),
        (R8I, R32I, COMPUTE_32I),
        (C32, C32, COMPUTE_32F),
        (C64, C64, COMPUTE_64F),
    ],
)
def test_gemm_of_types_that_are_named_in_the_call(blas, atype, ctype, compute):
    m, n, k, batches = 20, 12, 24, 2
    a = stored(m, k, T, TYPES[atype], batches)
    b, c = random(batches, k, n, dtype=TYPES[atype]), random(batches, m, n, dtype=TYPES[ctype])
    factors = {COMPUTE_16F: torch.float16, COMPUTE_64F: torch.float64, COMPUTE_32I: torch.int32}
    scale = factors.get(compute, torch.float32)
    if atype in (C32, C64):
        scale = TYPES[atype]
    alpha, beta = torch.full((1,), 3, dtype=scale), torch.full((1,), -2, dtype=scale)
    cc = columns(c, m)
    status = blas.run_GemmEx(
        T, N, m, n, k, alpha, columns(a, k), atype, k, k * m, columns(b, k), atype, k, k * n,
        beta, cc, ctype, m, m * n, batches, compute,
    )  # fmt: skip
    assert status == OK
    wanted = 3 * (wide(a).mT @ wide(b)) - 2 * wide(c)
    if ctype == R32I:
        assert torch.equal(rows_of(cc, m), wanted.to(torch.int32))
    else:
        near(rows_of(cc, m), wanted, k)


@pytest.mark.parametrize("ctype", [R16, RBF])
def test_a_sum_of_halves_is_rounded_once(blas, ctype):
    dtype = TYPES[ctype]
    a, b, c = (random(64, 64, dtype=dtype) for _ in range(3))
    one, cc = torch.ones(1), columns(c, 64)
    arguments = (N, N, 64, 64, 64, one, columns(a, 64), ctype, 64, 0, columns(b, 64), ctype, 64, 0)
    assert blas.run_GemmEx(*arguments, one, cc, ctype, 64, 0, 1, COMPUTE_32F) == OK
    exact = wide(a) @ wide(b) + wide(c)
    # Where a sum in float falls beside the middle of two halves it rounds as the exact one does.
    same = (rows_of(cc, 64) == exact.to(dtype)).double().mean()
    assert same > 0.99


def test_what_gemm_refuses(blas):
    x, one = torch.ones(16), torch.ones(1)

    def ex(atype=R32, btype=R32, ctype=R32, compute=COMPUTE_32F, m=2, lda=2, opa=N, batches=1):
        return blas.run_GemmEx(
            opa, N, m, 2, 2, one, x, atype, lda, 4, x, btype, 2, 4, one, x.clone(), ctype, 2, 4,
            batches, compute,
        )  # fmt: skip

    assert ex() == OK
    assert ex(m=-1) == ex(lda=1) == ex(opa=3) == ex(opa=-1) == ex(batches=-1) == INVALID
    assert ex(compute=5) == INVALID
    assert ex(btype=R16) == ex(atype=R16, btype=RBF, ctype=R16) == NOT_SUPPORTED
    assert ex(ctype=R64) == ex(compute=COMPUTE_64F) == ex(compute=COMPUTE_16F) == NOT_SUPPORTED
    assert ex(ctype=99) == ex(atype=8, btype=8) == NOT_SUPPORTED
    assert ex(m=0) == ex(batches=0) == OK


def test_factors_on_the_host(blas):
    a, b, c = random(3, 4), random(4, 2), random(3, 2)
    cc, dot = columns(c, 3), torch.zeros(1)
    ca, cb = columns(a, 3), columns(b, 4)
    assert blas.run_on_host(3, 2, 4, 2.0, ca, cb, -1.0, cc, dot) == OK
    near(rows_of(cc, 3), 2 * wide(a) @ wide(b) - wide(c), 4)
    near(dot, (wide(ca).view(-1)[:4] @ wide(cb).view(-1)[:4]).view(1), 4)


# ---- handles


def test_handles(blas):
    assert blas.run_handles(torch.zeros(1)) == 0
    assert blas.run_destroyed_handle() == NOT_INITIALIZED


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (OK, "SUCCESS"),
        (NOT_INITIALIZED, "NOT_INITIALIZED"),
        (INVALID, "INVALID_VALUE"),
        (13, "EXECUTION_FAILED"),
        (NOT_SUPPORTED, "NOT_SUPPORTED"),
    ],
)
def test_names_of_statuses(blas, status, name):
    spelled = torch.tensor([*f"CUBLAS_STATUS_{name}".encode(), 0], dtype=torch.int8)
    assert blas.run_name_is(status, spelled) == 1


def test_copies_of_matrices_and_vectors(blas):
    matrix, to = columns(random(3, 4), 5), torch.zeros(4 * 6 + 6)
    assert blas.run_matrix_copies(matrix, 3, 4, 5, to, 6) == OK
    assert torch.equal(to[:24].view(4, 6)[:, :3], matrix[:, :3])
    assert torch.equal(to[24::2], matrix[:3, 0])


# ---- vectors


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize(("incx", "incy"), [(1, 1), (2, 3), (-1, 2), (-3, -1)])
def test_vectors(blas, letter, incx, incy):
    dtype, n = DTYPES[letter], 33
    x, y = random(n * abs(incx), dtype=dtype), random(n * abs(incy), dtype=dtype)
    alpha = random(1, dtype=dtype)

    def seen(memory: torch.Tensor, step: int) -> torch.Tensor:
        """The vector: one whose step is negative is read from its end."""
        vector = memory[:: abs(step)][:n]
        return vector.flip(0) if step < 0 else vector

    result = y.clone()
    call(blas, f"{letter}axpy", n, alpha, x, incx, result, incy)
    near(seen(result, incy), wide(alpha) * wide(seen(x, incx)) + wide(seen(y, incy)))
    result = y.clone()
    call(blas, f"{letter}copy", n, x, incx, result, incy)
    assert torch.equal(seen(result, incy), seen(x, incx))
    a, b = x.clone(), y.clone()
    call(blas, f"{letter}swap", n, a, incx, b, incy)
    assert torch.equal(seen(a, incx), seen(y, incy))
    assert torch.equal(seen(b, incy), seen(x, incx))
    products = wide(seen(x, incx)), wide(seen(y, incy))
    result = torch.zeros(1, dtype=dtype)
    call(blas, f"{letter}dot{'u' * dtype.is_complex}", n, x, incx, y, incy, result)
    near(result, (products[0] * products[1]).sum().view(1))
    if dtype.is_complex:
        call(blas, f"{letter}dotc", n, x, incx, y, incy, result)
        near(result, torch.vdot(*products).view(1))
    if incx > 0:
        result = x.clone()
        call(blas, f"{letter}scal", n, alpha, result, incx)
        near(seen(result, incx), wide(alpha) * wide(seen(x, incx)))


@pytest.mark.parametrize("letter", DTYPES)
def test_measures_of_a_vector(blas, letter):
    dtype = DTYPES[letter]
    x = random(50, dtype=dtype)
    x[31] = x[33] = 9  # the first of equals counts
    x[7] = x[8] = 0
    real = torch.float32 if letter in "SC" else torch.float64
    places, sums = torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=real)
    call(blas, f"{letter}measures", 50, x, 1, places, sums)
    parts = wide(x).real.abs() + wide(x).imag.abs() if dtype.is_complex else wide(x).abs()
    assert places.tolist() == [32, 8]
    near(sums, torch.stack([parts.sum(), wide(x).norm()]).real)
    call(blas, f"{letter}measures", 0, x, 1, places, sums)
    assert places.tolist() == [0, 0]
    assert sums.tolist() == [0, 0]


def test_a_norm_does_not_run_over(blas):
    places, sums = torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.float64)
    call(blas, "Dmeasures", 4, torch.full((4,), 1e300, dtype=torch.float64), 1, places, sums)
    assert sums[1].item() == pytest.approx(2e300)


def test_rotations(blas):
    a, b, c, s = (torch.tensor([v]) for v in (3.0, 4.0, 0.0, 0.0))
    call(blas, "Srotg", a, b, c, s)
    near(torch.cat([a, c, s]), torch.tensor([5.0, 0.6, 0.8]))
    x, y = random(9), random(9)
    before = wide(x), wide(y)
    call(blas, "Srot", 9, x, 1, y, 1, c, s)
    near(x, 0.6 * before[0] + 0.8 * before[1])
    near(y, 0.6 * before[1] - 0.8 * before[0])


# ---- matrices with vectors, and matrices of which a half is stored


def half(matrix: torch.Tensor, fill: int, conjugated: bool = False) -> torch.Tensor:
    """The symmetric or Hermitian matrix whose half is stored in `matrix`."""
    kept = matrix.tril(-1) if fill == LOWER else matrix.triu(1)
    diagonal = matrix.diagonal().real.to(matrix.dtype) if conjugated else matrix.diagonal()
    return kept + (kept.mH if conjugated else kept.mT) + torch.diag(diagonal)


def triangular(matrix: torch.Tensor, fill: int, diag: int) -> torch.Tensor:
    kept = matrix.tril() if fill == LOWER else matrix.triu()
    return kept - torch.diag(kept.diagonal() - 1) if diag == UNIT else kept


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize("operation", [N, T, C])
@pytest.mark.parametrize("incx", [1, -2])
def test_gemv_and_ger(blas, letter, operation, incx):
    dtype, m, n = DTYPES[letter], 8, 5
    a, alpha, beta = random(m, n, dtype=dtype), random(1, dtype=dtype), random(1, dtype=dtype)
    rows, cols = op(a, operation).shape
    x, y = random(cols, dtype=dtype), random(rows, dtype=dtype)
    spread = torch.zeros(2 * cols, dtype=dtype)
    spread[:: abs(incx)][:cols] = x.flip(0) if incx < 0 else x
    result = y.clone()
    call(
        blas, f"{letter}gemv", operation, m, n, alpha, columns(a, m + 1), m + 1, spread, incx,
        beta, result, 1,
    )  # fmt: skip
    near(result, wide(alpha) * (op(wide(a), operation) @ wide(x)) + wide(beta) * wide(y), cols)
    if operation != N:
        return
    memory = columns(a, m + 1)
    name = f"{letter}gerc" if dtype.is_complex else f"{letter}ger"
    call(blas, name, m, n, alpha, y, 1, spread, incx, memory, m + 1)
    near(rows_of(memory, m), wide(alpha) * torch.outer(wide(y), wide(x).conj()) + wide(a))


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize("fill", [LOWER, UPPER])
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_symmetric_matrices(blas, letter, fill, side):
    dtype, m, n, k = DTYPES[letter], 7, 6, 9
    size = m if side == LEFT else n
    a, b, c = (random(*shape, dtype=dtype) for shape in ((size, size), (m, n), (m, n)))
    alpha, beta = random(1, dtype=dtype), random(1, dtype=dtype)
    for name, conjugated in (("symm", False), ("hemm", True)):
        if conjugated and not dtype.is_complex:
            continue
        full, memory = half(wide(a), fill, conjugated), columns(c, m)
        call(
            blas, f"{letter}{name}", side, fill, m, n, alpha, columns(a, size + 1), size + 1,
            columns(b, m), m, beta, memory, m,
        )  # fmt: skip
        product = full @ wide(b) if side == LEFT else wide(b) @ full
        near(rows_of(memory, m), wide(alpha) * product + wide(beta) * wide(c), size)
    x, y, operation = random(size, dtype=dtype), random(size, dtype=dtype), (N, T)[side]
    result = y.clone()
    call(blas, f"{letter}symv", fill, size, alpha, columns(a, size), size, x, 1, beta, result, 1)
    near(result, wide(alpha) * (half(wide(a), fill) @ wide(x)) + wide(beta) * wide(y), size)

    def check_half(memory: torch.Tensor, wanted: torch.Tensor, before: torch.Tensor) -> None:
        """The half that is stored; of the other nothing was written."""
        got, keep = rows_of(memory, len(wanted)), torch.tril if fill == LOWER else torch.triu
        near(keep(got), keep(wanted), k)
        assert torch.equal(got - keep(got), before - keep(before))

    memory = columns(a, size)
    call(blas, f"{letter}syr2", fill, size, alpha, x, 1, y, 1, memory, size)
    outer = torch.outer(wide(x), wide(y))
    check_half(memory, wide(a) + wide(alpha) * (outer + outer.mT), a)
    p, q = (stored(size, k, operation, dtype) for _ in range(2))
    ld = p.shape[0]
    u, v = op(wide(p), operation), op(wide(q), operation)
    memory = columns(a, size)
    call(
        blas, f"{letter}syrk", fill, operation, size, k, alpha, columns(p, ld), ld, beta, memory,
        size,
    )  # fmt: skip
    check_half(memory, wide(alpha) * u @ u.mT + wide(beta) * wide(a), a)
    memory = columns(a, size)
    call(
        blas, f"{letter}syr2k", fill, operation, size, k, alpha, columns(p, ld), ld,
        columns(q, ld), ld, beta, memory, size,
    )  # fmt: skip
    check_half(memory, wide(alpha) * (u @ v.mT + v @ u.mT) + wide(beta) * wide(a), a)
    if not dtype.is_complex:
        return
    operation = (N, C)[side]
    u, v = op(wide(p), operation), op(wide(q), operation)
    real = torch.randn(2, dtype=torch.float32 if letter == "C" else torch.float64)
    memory = columns(a, size)
    by, plus = real[:1].clone(), real[1:].clone()
    hermitian = half(wide(a), fill, conjugated=True)
    call(
        blas, f"{letter}herk", fill, operation, size, k, by, columns(p, ld), ld, plus, memory, size
    )  # fmt: skip
    check_half(memory, wide(by) * u @ u.mH + wide(plus) * hermitian, a)
    memory = columns(a, size)
    call(
        blas, f"{letter}her2k", fill, operation, size, k, alpha, columns(p, ld), ld,
        columns(q, ld), ld, plus, memory, size,
    )  # fmt: skip
    twice = wide(alpha) * u @ v.mH
    check_half(memory, twice + twice.mH + wide(plus) * hermitian, a)


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize(
    ("side", "fill", "operation", "diag"),
    list(itertools.product((LEFT, RIGHT), (LOWER, UPPER), (N, T, C), (GENERAL, UNIT))),
)
def test_triangular_matrices(blas, letter, side, fill, operation, diag):
    dtype = DTYPES[letter]
    m, n = (70, 3) if side == LEFT else (3, 70)  # more than the block of a solution
    size = max(m, n)
    a = random(size, size, dtype=dtype) / size + 2 * torch.eye(size, dtype=dtype)
    b, alpha = random(m, n, dtype=dtype), random(1, dtype=dtype)
    full = op(triangular(wide(a), fill, diag), operation)
    memory, how = columns(a, size + 1), (side, fill, operation, diag)
    result = torch.zeros(n, m, dtype=dtype)
    call(
        blas, f"{letter}trmm", *how, m, n, alpha, memory, size + 1, columns(b, m), m, result, m
    )  # fmt: skip
    product = full @ wide(b) if side == LEFT else wide(b) @ full
    near(result.mT, wide(alpha) * product, size)
    solution = columns(b, m + 2)
    call(blas, f"{letter}trsm", *how, m, n, alpha, memory, size + 1, solution, m + 2)
    x = wide(rows_of(solution, m))
    near((full @ x if side == LEFT else x @ full).to(dtype), wide(alpha) * wide(b), 4 * size)
    if side == RIGHT:
        return
    x = random(size, dtype=dtype)
    vector = x.clone()
    call(blas, f"{letter}trmv", *how[1:], size, memory, size + 1, vector, 1)
    near(vector, full @ wide(x), size)
    call(blas, f"{letter}trsv", *how[1:], size, memory, size + 1, vector, 1)
    near(vector, wide(x), 8 * size)


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize(("opa", "opb"), PAIRS)
def test_sums_and_diagonals(blas, letter, opa, opb):
    dtype, m, n = DTYPES[letter], 6, 4
    a, b = stored(m, n, opa, dtype), stored(m, n, opb, dtype)
    alpha, beta, zero = random(1, dtype=dtype), random(1, dtype=dtype), torch.zeros(1, dtype=dtype)
    result, lda, ldb = torch.zeros(n, m, dtype=dtype), a.shape[0], b.shape[0]
    ca, cb = columns(a, lda), columns(b, ldb)
    call(blas, f"{letter}geam", opa, opb, m, n, alpha, ca, lda, beta, cb, ldb, result, m)
    near(result.mT, wide(alpha) * op(wide(a), opa) + wide(beta) * op(wide(b), opb))
    nans = torch.full_like(cb, math.nan)
    call(blas, f"{letter}geam", opa, opb, m, n, alpha, ca, lda, zero, nans, ldb, result, m)
    near(result.mT, wide(alpha) * op(wide(a), opa))
    side, matrix = (LEFT, RIGHT)[opa == N], columns(random(m, n, dtype=dtype), m)
    x = random(m if side == LEFT else n, dtype=dtype)
    call(blas, f"{letter}dgmm", side, m, n, matrix, m, x, 1, result, m)
    near(result.mT, wide(matrix.mT) * (wide(x)[:, None] if side == LEFT else wide(x)))


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize("operation", [N, T, C])
def test_lu_of_batches(blas, letter, operation):
    dtype, n, k, batches = DTYPES[letter], 9, 4, 3
    a, b = random(batches, n, n, dtype=dtype), random(batches, n, k, dtype=dtype)
    lu, x, inverse = columns(a, n), columns(b, n), columns(a, n)
    pivots, info = (
        torch.zeros(batches, n, dtype=torch.int32),
        torch.ones(batches, dtype=torch.int32),
    )
    call(blas, f"{letter}lu", operation, n, k, lu, x, inverse, pivots, info, batches)
    assert not info.any()
    wanted, exchanged = torch.linalg.lu_factor(wide(a))
    assert torch.equal(pivots, exchanged)
    near(rows_of(lu, n), wanted, 16 * n)
    near((op(wide(a), operation) @ wide(rows_of(x, n))).to(dtype), b, 64 * n)
    near(
        (wide(a) @ wide(rows_of(inverse, n))).to(dtype),
        torch.eye(n, dtype=wide(a).dtype).expand_as(a),
        64 * n,
    )


# ---- cuBLASLt

DEFAULT, RELU, BIAS, DRELU, BGRAD, GELU, DGELU, AUX, BGRADA, BGRADB = (
    *(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
)
COL, ROW = 0, 1
HOST, DEVICE, DEVICE_VECTOR, VECTOR_BETA_ZERO = 0, 1, 2, 3


def matmul(
    blas: jitload.Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    *,
    types: tuple[int, int, int, int] = (R32, R32, R32, R32),
    opa: int = N,
    opb: int = N,
    order: int = COL,
    alpha: torch.Tensor | None = None,
    beta: float = 0.0,
    compute: int = COMPUTE_32F,
    scale: int = R32,
    mode: int = DEVICE,
    epilogue: int = DEFAULT,
    bias: torch.Tensor | None = None,
    bias_type: int = -1,
    aux: torch.Tensor | None = None,
    aux_type: int = -1,
    aux_ld: int = 0,
    scales: tuple[float, float, float] = (1, 1, 1),
) -> tuple[int, torch.Tensor, float]:
    """The status, D, and its largest magnitude, of matrices [m, k] and so on."""

    def memory(matrix: torch.Tensor) -> torch.Tensor:
        return matrix.contiguous() if order == ROW else matrix.mT.contiguous()

    (m, k), n = op(a, opa).shape[-2:], op(b, opb).shape[-1]
    batches = a.shape[0] if a.dim() == 3 else 1
    d = memory(torch.zeros(*a.shape[:-2], m, n).to(TYPES[types[3]]))
    if alpha is None:
        alpha = torch.ones(1).to(TYPES[scale])
    none, largest = torch.zeros(1), torch.zeros(1)
    status = blas.run_matmul(
        m, n, k, batches, order, opa, opb, alpha, memory(a), types[0], memory(b), types[1],
        torch.full((1,), beta).to(TYPES[scale]), memory(c), types[2], d, types[3], compute, scale,
        mode, epilogue, none if bias is None else bias, bias_type, none if aux is None else aux,
        aux_type, aux_ld, torch.tensor(scales, dtype=torch.float32), largest,
    )  # fmt: skip
    return status, d if order == ROW else d.mT, largest.item()


M, NN, K = 24, 10, 16


@pytest.fixture
def abc():
    return random(M, K), random(K, NN), random(M, NN)


@pytest.mark.parametrize("order", [COL, ROW])
@pytest.mark.parametrize(("opa", "opb"), [(N, N), (N, T), (T, N), (T, T)])
def test_matmul(blas, abc, order, opa, opb):
    a, b, c = abc
    stored_a, stored_b = op(a, opa), op(b, opb)
    status, d, _ = matmul(
        blas, stored_a, stored_b, c, opa=opa, opb=opb, order=order, beta=0.5
    )  # fmt: skip
    assert status == OK
    near(d, wide(a) @ wide(b) + 0.5 * wide(c), K)


@pytest.mark.parametrize("bias_type", [R32, RBF])
@pytest.mark.parametrize("order", [COL, ROW])
@pytest.mark.parametrize("epilogue", [BIAS, RELU, RELU | BIAS, GELU, GELU | BIAS])
def test_bias_and_activations(blas, abc, epilogue, order, bias_type):
    a, b, c = abc
    bias = random(M, dtype=TYPES[bias_type])
    status, d, _ = matmul(
        blas, a, b, c, order=order, epilogue=epilogue, bias=bias, bias_type=bias_type
    )  # fmt: skip
    assert status == OK
    wanted = wide(a) @ wide(b)
    if epilogue & BIAS:
        wanted = wanted + wide(bias)[:, None]
    if epilogue & RELU:
        wanted = wanted.relu()
    if epilogue & GELU:
        wanted = F.gelu(wanted, approximate="tanh")
    near(d, wanted, K)


@pytest.mark.parametrize("ctype", [R32, R16, RBF])
@pytest.mark.parametrize("biased", [0, BIAS])
def test_gelu_keeps_what_its_gradient_needs(blas, abc, biased, ctype):
    a, b, c = (it.to(TYPES[ctype]) for it in abc)
    bias, aux = random(M, dtype=TYPES[ctype]), torch.zeros(NN, M + 8, dtype=TYPES[ctype])
    types = (ctype,) * 4
    status, d, _ = matmul(
        blas, a, b, c, types=types, epilogue=GELU | AUX | biased, bias=bias, aux=aux, aux_ld=M + 8
    )  # fmt: skip
    assert status == OK
    before = wide(a) @ wide(b) + (wide(bias)[:, None] if biased else 0)
    near(rows_of(aux, M), before, K)
    near(d, F.gelu(before, approximate="tanh"), K)
    for summed in (0, BGRAD):
        sums, x = torch.zeros(M, dtype=TYPES[ctype]), wide(rows_of(aux, M)).requires_grad_()
        arguments = {"types": types, "epilogue": DGELU | AUX | summed, "bias": sums}
        status, gradient, _ = matmul(blas, a, b, c, aux=aux, aux_ld=M + 8, **arguments)
        assert status == OK
        F.gelu(x, approximate="tanh").backward(wide(a) @ wide(b))
        near(gradient, x.grad, K)
        near(sums, x.grad.sum(1) if summed else torch.zeros(M), 16 * K)


@pytest.mark.parametrize("order", [COL, ROW])
def test_relu_keeps_a_bit_an_element(blas, abc, order):
    a, b, c = abc
    bias, bits = random(M), torch.zeros(NN if order == COL else M, 16, dtype=torch.uint8)
    arguments = {"aux": bits, "aux_ld": 128, "order": order}
    status, d, _ = matmul(blas, a, b, c, epilogue=RELU | AUX | BIAS, bias=bias, **arguments)
    assert status == OK
    before = wide(a) @ wide(b) + wide(bias)[:, None]
    near(d, before.relu(), K)
    spread = (bits[..., None] >> torch.arange(8) & 1).flatten(1)
    mask = rows_of(spread, M) if order == COL else spread[:, :NN]
    assert torch.equal(mask.bool(), before > 0)
    sums = torch.zeros(M)
    status, d, _ = matmul(blas, a, b, c, epilogue=DRELU | AUX | BGRAD, bias=sums, **arguments)
    assert status == OK
    wanted = (wide(a) @ wide(b)) * (before > 0)
    near(d, wanted, K)
    near(sums, wanted.sum(1), 16 * K)


@pytest.mark.parametrize(("part", "length"), [(BGRADA, M), (BGRADB, NN)])
def test_gradients_of_biases(blas, abc, part, length):
    a, b, c = abc
    sums = torch.zeros(length)
    status, d, _ = matmul(blas, a.mT, b, c, opa=T, epilogue=part, bias=sums)
    assert status == OK
    near(d, wide(a) @ wide(b), K)
    near(sums, wide(a).sum(1) if part == BGRADA else wide(b).sum(0), K)


def test_matmul_of_a_batch_with_a_bias_each(blas):
    a, b, c, bias = random(3, M, K), random(3, K, NN), random(3, M, NN), random(3, M)
    status, d, _ = matmul(blas, a, b, c, beta=-1.0, epilogue=BIAS, bias=bias)
    assert status == OK
    near(d, wide(a) @ wide(b) - wide(c) + wide(bias)[..., None], K)


def test_matmul_of_integers(blas):
    a, b = random(16, 32, dtype=torch.int8), random(32, 8, dtype=torch.int8)
    c, how = torch.zeros(16, 8, dtype=torch.int32), {"compute": COMPUTE_32I, "opa": T}
    status, d, _ = matmul(blas, a.mT, b, c, types=(R8I, R8I, R32I, R32I), scale=R32I, **how)
    assert status == OK
    assert torch.equal(d.long(), a.long() @ b.long())
    narrow, alpha = torch.zeros(16, 8, dtype=torch.int8), torch.full((1,), 1 / 512)
    status, d, _ = matmul(blas, a.mT, b, narrow, types=(R8I,) * 4, alpha=alpha, **how)
    assert status == OK
    exact = (a.double() @ b.double() / 512).round().clamp(-128, 127)
    assert torch.equal(d.double(), exact)


@pytest.mark.parametrize("atype", [E4M3, E5M2])
@pytest.mark.parametrize(("ctype", "dtype"), [(RBF, RBF), (R16, R16), (R32, R32), (RBF, E4M3)])
def test_matmul_of_8_bit_floats_with_their_scales(blas, abc, atype, ctype, dtype):
    a, b = random(M, 32).to(TYPES[atype]), random(32, 16).to(TYPES[E4M3])
    c, bias = torch.zeros(M, 16).to(TYPES[ctype]), random(M).to(TYPES[R16 if ctype == R16 else RBF])
    types = (atype, E4M3, ctype, dtype)
    status, d, largest = matmul(
        blas, a.mT, b, c, types=types, opa=T, epilogue=BIAS, bias=bias, scales=(0.5, 2.0, 4.0)
    )
    assert status == OK
    wanted = wide(a) @ wide(b) + wide(bias)[:, None]
    if dtype == E4M3:
        near(torch.tensor(largest), wanted.abs().max().float(), 32)
        same = d.float() == (4 * wanted).to(torch.float32).to(TYPES[E4M3]).float()
        assert same.double().mean() > 0.99
        largest_number = torch.finfo(TYPES[E4M3]).max
        assert (d.float()[(4 * wanted).abs() > largest_number].abs() == largest_number).all()
    else:
        near(d, wanted, 32)


def test_a_factor_for_every_row(blas, abc):
    a, b, c = abc
    alpha = random(M)
    c = torch.full_like(c, math.nan)
    status, d, _ = matmul(blas, a, b, c, alpha=alpha, mode=VECTOR_BETA_ZERO, beta=7.0)
    assert status == OK
    near(d, wide(alpha)[:, None] * (wide(a) @ wide(b)), K)


def test_what_matmul_refuses(blas, abc):
    a, b, c = abc

    def status(**how: object) -> int:
        return matmul(blas, a, b, c, **how)[0]

    assert status() == OK
    assert status(opa=5) == status(epilogue=3) == INVALID
    assert status(epilogue=GELU | AUX, aux=torch.zeros(NN, M), aux_ld=M - 1) == INVALID
    assert status(types=(E5M2, E5M2, R32, R32)) == NOT_SUPPORTED
    assert status(types=(R32, R16, R32, R32)) == status(types=(R32, R32, R16, R32)) == NOT_SUPPORTED
    assert status(scale=R64) == status(compute=COMPUTE_64F) == NOT_SUPPORTED
    assert status(order=2) == status(mode=DEVICE_VECTOR) == NOT_SUPPORTED


def test_descriptions(blas):
    assert blas.run_descriptions() == 0


def test_transforms(blas):
    a, b, c = random(5, 3), random(5, 3), torch.zeros(5, 3)
    # A lies by columns as [3, 5], which is [5, 3] by rows.
    assert blas.run_transform(a, b, c, 5, 3) == OK
    near(c, wide(a) + 2 * wide(b))


# ---- in a program


def test_a_product_between_kernels(blas):
    a, b, c = random(8, 8), random(8, 8), torch.zeros(8, 8)
    before = wide(a)
    assert blas.run_between_kernels(a, b, c, 8) == OK
    near(c.mT, (before.mT + 1) @ wide(b).mT + 1, 8)


def test_a_graph_of_cublas(blas):
    a, c = random(8), random(8)
    before = wide(c)
    assert blas.run_captured(a, c, 8) == 0
    near(c, before + 4 * wide(a))


def test_the_checker_knows_what_the_library_writes(blas):
    a, b = random(8, 8), random(8, 8)
    report = lab.check(lambda a, b: _product_in_new_memory(blas, a, b), a, b)
    assert report.findings.empty, str(report)


def _product_in_new_memory(blas: jitload.Kernel, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(8, 8)  # a kernel adds to what the library has written there
    blas.run_between_kernels(a, b, c, 8)
    return c


def test_a_program_calls_it(tmp_path):
    source = tmp_path / "program.cu"
    source.write_text(PROGRAM)
    said: list[bytes] = []
    ran = jitload.Program(source, target="cpu").run(output=lambda _, text: said.append(text))
    assert (b"".join(said), ran.status) == (b"11 status 0\n", 0)


PROGRAM = """
#include <cublas_v2.h>
#include <stdio.h>
int main() {
    float values[] = {1, 2, 3, 4}, *x, result = 0;
    cudaMalloc(&x, sizeof values);
    cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice);
    cublasHandle_t handle;
    cublasCreate(&handle);
    const cublasStatus_t status = cublasSdot(handle, 2, x, 1, x + 2, 1, &result);
    cublasDestroy(handle);
    printf("%g status %d\\n", result, status);
}
"""


def test_only_a_source_that_includes_it_opens_the_library(blas):
    assert blas.build.libraries == ["cublas_api.h"]
    assert jitload.load("square", target="cpu").build.libraries == []


def test_a_library_that_does_not_compile_says_so(blas, tmp_path, monkeypatch):
    broken = tmp_path / "cublas.cpp"
    broken.write_text("#include <torch/no_such_header.h>\n")
    monkeypatch.setitem(runtime.simulator.LIBRARIES, "cublas_api.h", broken)
    monkeypatch.setattr(runtime, "_library_of", runtime._library_of.__wrapped__)
    with pytest.raises(
        CompileError, match=r"library for <cublas_api.h> does not compile.*"
    ) as error:
        runtime.open_libraries(blas.build)
    assert "torch/no_such_header.h" in str(error.value)
    assert "headers that come with torch" in str(error.value)
