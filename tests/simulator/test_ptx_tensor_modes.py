"""Tensor copies that take no plain boxes: single rows (gather4 and scatter4), pixels with their
channels (im2col), packed elements of 4 and 6 bits; and tensor maps that a kernel changes.

No GPU of compute capability 10.0 was there: the layouts are those of the PTX manual and of cuda.h.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import jitload
import lab

TELLS = "mbarrier::complete_tx::bytes"
TO = "cp.async.bulk.tensor.{}d.shared::{}.global.{}." + TELLS
FROM = "cp.async.bulk.tensor.{}d.global.shared::cta.{}.bulk_group"


def coordinates(count: int) -> str:
    return "{" + ", ".join(f"%{3 + i}" for i in range(count)) + "}"


def offsets(count: int) -> str:
    return "{" + ", ".join(f"o{i}" for i in range(count)) + "}"


HINT = ".L2::cache_hint"
# What stands for the instruction, by what the tests call it. %0: shared memory, %1: the map, %2:
# the barrier, %3 on: coordinates; o0 on: offsets of 16 bits, p: a policy, m: a mask.
LOADS = {
    "tile": f"{TO.format(2, 'cluster', 'tile')} [%0], [%1, {coordinates(2)}], [%2];",
    "gather4": (
        f"{TO.format(2, 'cta', 'tile::gather4')}{HINT} [%0], [%1, {coordinates(5)}], [%2], p;"
    ),
    "gather4 cluster": (
        f"{TO.format(2, 'cluster', 'tile::gather4')}.multicast::cluster.cta_group::1"
        f" [%0], [%1, {coordinates(5)}], [%2], m;"
    ),
    **{
        f"im2col {rank}": (
            f"{TO.format(rank, 'cluster', 'im2col')}{HINT * (rank == 5)}"
            f" [%0], [%1, {coordinates(rank)}], [%2], {offsets(rank - 2)}{', p' * (rank == 5)};"
        )
        for rank in (3, 4, 5)
    },
    "im2col::w": (
        f"{TO.format(4, 'cluster', 'im2col::w')}.cta_group::1"
        f" [%0], [%1, {coordinates(4)}], [%2], {offsets(2)};"
    ),
    "im2col::w 3": (
        f"{TO.format(3, 'cta', 'im2col::w')} [%0], [%1, {coordinates(3)}], [%2], {offsets(2)};"
    ),
    "im2col::w::128": (
        f"{TO.format(4, 'cta', 'im2col::w::128')} [%0], [%1, {coordinates(4)}], [%2], {offsets(2)};"
    ),
}
STORES = {
    "tile": f"{FROM.format(2, 'tile')} [%1, {coordinates(2)}], [%0];",
    "scatter4": f"{FROM.format(2, 'tile::scatter4')}{HINT} [%1, {coordinates(5)}], [%0], p;",
    "im2col_no_offs": f"{FROM.format(4, 'im2col_no_offs')} [%1, {coordinates(4)}], [%0];",
    "add scatter4": (
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group"
        f" [%1, {coordinates(5)}], [%0];"
    ),
    "add im2col_no_offs": (
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group"
        f" [%1, {coordinates(4)}], [%0];"
    ),
}
PREFETCHES = [
    f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%1, {coordinates(5)}];",
    "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col::w::128"
    f" [%1, {coordinates(4)}], {offsets(2)};",
]

OPERANDS = (
    '"r"(at), "l"(&map), "r"(bar), '
    + ", ".join(f'"r"(place.c[{i}])' for i in range(5))
    + ", "
    + ", ".join(f'"h"((short)place.o[{i}])' for i in range(3))
)
NAMED = "{ .reg .b16 o0, o1, o2, m; .reg .b64 p; mov.b16 o0, %8; mov.b16 o1, %9; mov.b16 o2, %10;"
NAMED += " mov.b16 m, 1; createpolicy.fractional.L2::evict_first.b64 p, 1.0; "


def cases(texts) -> str:
    return "\n".join(
        f'if (which == {n}) asm volatile("{NAMED}{text} }}" :: {OPERANDS} : "memory");'
        for n, text in enumerate(texts)
    )


CHANGES = "".join(
    f'asm volatile("tensormap.replace.tile.{field}.shared::cta.b1024.b{width} [%0], {how};"'
    f' :: "r"(at), "{letter}"({value}));'
    for field, how, value, width in [
        ("global_address", "%1", "x", 64),
        ("rank", "1", "0", 32),
        ("global_dim", "0, %1", "cols", 32),
        ("global_dim", "1, %1", "rows", 32),
        ("global_stride", "0, %1", "2ll * cols", 64),
        ("box_dim", "0, 64", "0", 32),
        ("box_dim", "1, 4", "0", 32),
        ("element_stride", "1, 1", "0", 32),
        ("elemtype", "1", "0", 32),
        ("interleave_layout", "0", "0", 32),
        ("swizzle_mode", "3", "0", 32),
        ("swizzle_atomicity", "1", "0", 32),
        ("fill_mode", "0", "0", 32),
    ]
    for letter in ("l" if width == 64 else "r")
)
SOURCE = f"""
#include <cuda.h>
#include <stdint.h>
struct Place {{ int c[5], o[3]; }};
__device__ void wait(uint32_t bar) {{
    asm volatile("{{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
                 " @!p bra L; }}" :: "r"(bar) : "memory");
}}
__global__ void load(const __grid_constant__ CUtensorMap map, int8_t* y, int which, int bytes,
                     Place place) {{
    extern __shared__ __align__(1024) int8_t s[];
    __shared__ uint64_t barrier;
    const uint32_t at = __cvta_generic_to_shared(s), bar = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {{
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(bar), "r"(bytes));
        {cases(LOADS.values())}
    }}
    __syncthreads();
    wait(bar);
    for (int i = threadIdx.x; i < bytes; i += 32) y[i] = s[i];
}}
__global__ void store(const __grid_constant__ CUtensorMap map, const int8_t* y, int which,
                      int bytes, Place place) {{
    extern __shared__ __align__(1024) int8_t s[];
    const uint32_t at = __cvta_generic_to_shared(s), bar = 0;
    for (int i = threadIdx.x; i < bytes; i += 32) s[i] = y[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x) return;
    {cases(STORES.values())}
    asm volatile("cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;" ::: "memory");
}}
__global__ void prefetch(const __grid_constant__ CUtensorMap map, Place place) {{
    const uint32_t at = 0, bar = 0;
    for (int which = 0; which < {len(PREFETCHES)}; which++) {{
        {cases(PREFETCHES)}
    }}
}}
// p: extent[5], strides[4], box[5], steps[5], lower[3], upper[3], channels, pixels, coordinates[5],
// offsets[3].
static CUresult encoded(CUtensorMap* map, int8_t* x, int kind, int type, int swizzle, int rank,
                        const int64_t* p) {{
    cuuint64_t extent[5], strides[4];
    cuuint32_t box[5], steps[5];
    int lower[3], upper[3];
    for (int i = 0; i < 5; i++) extent[i] = p[i], box[i] = p[9 + i], steps[i] = p[14 + i];
    for (int i = 0; i < 4; i++) strides[i] = p[5 + i];
    for (int i = 0; i < 3; i++) lower[i] = p[19 + i], upper[i] = p[22 + i];
    const auto of = (CUtensorMapDataType)type;
    const auto way = (CUtensorMapSwizzle)swizzle;
    const auto none = CU_TENSOR_MAP_INTERLEAVE_NONE;
    const auto promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
    const auto fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    if (kind == 0)
        return cuTensorMapEncodeTiled(map, of, rank, x, extent, strides, box, steps, none, way,
                                      promotion, fill);
    if (kind == 1)
        return cuTensorMapEncodeIm2col(map, of, rank, x, extent, strides, lower, upper, p[25],
                                       p[26], steps, none, way, promotion, fill);
    return cuTensorMapEncodeIm2colWide(
        map, of, rank, x, extent, strides, lower[0], upper[0], p[25], p[26], steps, none,
        kind == 2 ? CU_TENSOR_MAP_IM2COL_WIDE_MODE_W : CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128, way,
        promotion, fill);
}}
extern "C" int run(int8_t* y, int8_t* x, int direction, int which, int bytes, int kind, int type,
                   int swizzle, int rank, const int64_t* p) {{
    CUtensorMap map;
    if (CUresult error = encoded(&map, x, kind, type, swizzle, rank, p)) return error;
    Place place;
    for (int i = 0; i < 5; i++) place.c[i] = p[27 + i];
    for (int i = 0; i < 3; i++) place.o[i] = p[32 + i];
    if (direction == 0) load<<<1, 32, bytes>>>(map, y, which, bytes, place);
    if (direction == 1) store<<<1, 32, bytes>>>(map, y, which, bytes, place);
    if (direction == 2) prefetch<<<1, 1>>>(map, place);
    return 0;
}}

__global__ void change(CUtensorMap* out, const __grid_constant__ CUtensorMap map, int8_t* x,
                       int cols, int rows) {{
    __shared__ __align__(128) CUtensorMap mine;
    if (threadIdx.x == 0) {{
        mine = map;
        const uint32_t at = __cvta_generic_to_shared(&mine);
        {CHANGES}
    }}
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
                 ".aligned [%0], [%1], 128;"
                 :: "l"(out), "r"((uint32_t)__cvta_generic_to_shared(&mine)) : "memory");
}}
__global__ void load_by(const CUtensorMap* map, int8_t* y, int bytes) {{
    extern __shared__ __align__(1024) int8_t s[];
    __shared__ uint64_t barrier;
    const uint32_t at = __cvta_generic_to_shared(s), bar = __cvta_generic_to_shared(&barrier);
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes));
    asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.{TELLS} [%0], [%1, {{%2, %3}}], [%4];"
                 :: "r"(at), "l"(map), "r"(0), "r"(2), "r"(bar) : "memory");
    wait(bar);
    for (int i = 0; i < bytes; i++) y[i] = s[i];
}}
extern "C" int run_changed(int8_t* y, int8_t* x, int8_t* maps, const int64_t* p) {{
    CUtensorMap map;
    if (CUresult error = encoded(&map, x + 4096, 0, 0, 0, 2, p)) return error;
    change<<<1, 32>>>((CUtensorMap*)maps, map, x, 64, 8);
    load_by<<<1, 1, 512>>>((CUtensorMap*)maps, y, 512);
    return 0;
}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("modes") / "tensor_modes.cu"
    path.write_text(SOURCE)
    return jitload.load(path, target="cpu")


U8, U16, S32 = 0, 1, 3
U4, U4_PADDED, U6_PADDED = 13, 14, 15


def parameters(
    extent, strides, box=(), at=(), steps=(), lower=(), upper=(), channels=1, pixels=1, shifts=()
):
    def filled(values, count: int, default: int) -> list[int]:
        return [*values, *[default] * count][:count]

    return torch.tensor(
        [
            *(*filled(extent, 5, 1), *filled(strides, 4, 0), *filled(box, 5, 1)),
            *(*filled(steps, 5, 1), *filled(lower, 3, 0), *filled(upper, 3, 0)),
            *(channels, pixels, *filled(at, 5, 0), *filled(shifts, 3, 0)),
        ]
    )


def run(built, name, y, x, kind, type_, swizzle, rank, direction=0, **values) -> int:
    which = list((LOADS, STORES)[direction]).index(name)
    return built.run(
        y, x, direction, which, y.numel(), kind, type_, swizzle, rank, parameters(**values)
    )


def image(*extent: int, seed: int = 0) -> np.ndarray:
    """Of 16 bits; extent from the innermost dimension on, as the indices of the result are not."""
    return np.random.default_rng(seed).integers(1, 60000, extent[::-1]).astype(np.uint16)


def strides_of(array: np.ndarray) -> list[int]:
    return list(array.strides[::-1][1:])


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.reshape(-1).view(np.int8)).clone()  # aligned


def empty(count: int) -> torch.Tensor:
    return torch.full((count,), -1, dtype=torch.int8)


def words(y: torch.Tensor, *shape: int) -> np.ndarray:
    return y.numpy().view(np.uint16).reshape(shape)


def element(x: np.ndarray, *index: int):
    """Zero outside of the tensor; the indices are from the innermost dimension on."""
    inside = all(0 <= i < n for i, n in zip(index, x.shape[::-1], strict=True))
    return x[index[::-1]] if inside else 0


# ---- Rows


@pytest.mark.parametrize("name", ["gather4", "gather4 cluster"])
@pytest.mark.parametrize(
    ("column", "rows"), [(8, (5, 0, 5, 3)), (24, (-1, 19, 20, 2)), (-8, (1, 2, 3, 4))]
)
def test_four_rows_are_gathered(built, name, column, rows):
    x = image(32, 20)
    y = empty(4 * 16 * 2)
    values = {"extent": (32, 20), "strides": strides_of(x), "box": (16, 1), "at": (column, *rows)}
    assert run(built, name, y, tensor(x), 0, U16, 0, 2, **values) == 0
    expected = [[element(x, column + i, row) for i in range(16)] for row in rows]
    assert words(y, 4, 16).tolist() == expected


def test_rows_are_gathered_in_a_swizzle(built):
    x = image(64, 20)
    y = empty(4 * 128)
    values = {"extent": (64, 20), "strides": strides_of(x), "box": (64, 1), "at": (0, 7, 2, 9, 4)}
    assert run(built, "gather4", y, tensor(x), 0, U16, 3, 2, **values) == 0
    chunks = words(y, 4, 8, 8)
    for line, row in enumerate((7, 2, 9, 4)):
        ordered = [chunks[line, chunk ^ line].tolist() for chunk in range(8)]
        assert np.ravel(ordered).tolist() == x[row].tolist()


@pytest.mark.parametrize("name", ["scatter4", "add scatter4"])
def test_four_rows_are_scattered(built, name):
    x = np.random.default_rng(1).integers(0, 1000, (12, 16)).astype(np.int32)
    new = np.random.default_rng(2).integers(0, 1000, (4, 8)).astype(np.int32)
    rows = (3, 11, 12, 0)
    memory, y = tensor(x), tensor(new)
    values = {"extent": (16, 12), "strides": [64], "box": (8, 1), "at": (12, *rows)}
    assert run(built, name, y, memory, 0, S32, 0, 2, direction=1, **values) == 0
    expected = x.copy()
    for line, row in enumerate(rows):
        for i in range(4):  # the other four lie outside
            if row < 12:
                expected[row, 12 + i] = new[line, i] + x[row, 12 + i] * name.startswith("add")
    assert memory.numpy().view(np.int32).tolist() == expected.reshape(-1).tolist()


def test_a_box_of_several_rows_is_refused_for_gather4(built):
    x = image(32, 20)
    values = {"extent": (32, 20), "strides": strides_of(x), "box": (16, 2)}
    with pytest.raises(RuntimeError, match="whose box is one row"):
        run(built, "gather4", empty(128), tensor(x), 0, U16, 0, 2, **values)


# ---- Pixels


def pixels_of(extent, lower, upper, at, steps, pixels):
    """Positions (w, h, ..., n) of an im2col column, without the filter's offsets, by their order
    among all positions of the bounding boxes."""
    ranges = [
        range(low, n + high, step)
        for n, low, high, step in zip(extent[1:-1], lower, upper, steps[1:-1], strict=True)
    ]
    every = list(itertools.product(range(extent[-1] + pixels), *reversed(ranges)))
    every = [(*reversed(spatial), n) for n, *spatial in every]
    first = every.index(tuple(at[1:]))
    return every[first : first + pixels]


CONVOLUTIONS = [
    # extent, lower, upper, at, steps, pixels, offsets
    ((16, 9, 3), (-1,), (-1,), (0, 2, 1), (1, 1, 1), 20, (2,)),
    ((16, 7, 5, 3), (-1, -1), (-1, -1), (8, -1, -1, 0), (1, 1, 1, 1), 64, (0, 0)),
    ((16, 7, 5, 3), (-1, -1), (-1, -1), (0, 3, 2, 1), (1, 1, 1, 1), 40, (2, 1)),
    ((8, 9, 9, 2), (-2, -2), (-2, -2), (0, -2, 2, 0), (1, 2, 2, 1), 33, (4, 2)),
    ((16, 4, 3, 3, 2), (-1, 0, -1), (0, 0, -1), (0, -1, 1, 0, 0), (1, 1, 1, 1, 1), 50, (1, 0, 2)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=[str(case[0]) for case in CONVOLUTIONS])
def test_pixels_come_as_a_convolution_reads_them(built, case):
    extent, lower, upper, at, steps, pixels, shifts = case
    x, rank = image(*extent), len(extent)
    y = empty(pixels * 8 * 2)
    values = {"extent": extent, "strides": strides_of(x), "lower": lower, "upper": upper, "at": at}
    values |= {"steps": steps, "channels": 8, "pixels": pixels, "shifts": shifts}
    assert run(built, f"im2col {rank}", y, tensor(x), 1, U16, 0, rank, **values) == 0
    expected = [
        [element(x, at[0] + c, *map(sum, zip(place, (*shifts, 0), strict=True))) for c in range(8)]
        for place in pixels_of(extent, lower, upper, at, steps, pixels)
    ]
    assert words(y, pixels, 8).tolist() == expected


def test_a_convolution_of_pixels_is_torchs(built):
    """3 x 3 with padding, from its nine columns."""
    x = torch.randint(-8, 8, (2, 6, 5, 8))  # images, rows, columns, channels
    weight = torch.randint(-4, 4, (3, 3, 8))
    pixels, total = 2 * 6 * 5, torch.zeros(60, dtype=torch.int64)
    source = tensor(x.to(torch.int16).numpy())
    for r, s in itertools.product(range(3), range(3)):
        y = empty(pixels * 16)
        values = {"extent": (8, 5, 6, 2), "strides": (16, 80, 480), "lower": (-1, -1)}
        values |= {"upper": (-1, -1), "at": (0, -1, -1, 0), "channels": 8, "pixels": pixels}
        assert run(built, "im2col 4", y, source, 1, U16, 0, 4, shifts=(s, r), **values) == 0
        column = torch.from_numpy(y.numpy().view(np.int16).copy()).view(pixels, 8).long()
        total += (column * weight[r, s]).sum(1)
    truth = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2).double(), weight.permute(2, 0, 1)[None].double(), padding=1
    )
    assert total.tolist() == truth.flatten().long().tolist()


@pytest.mark.parametrize("name", ["im2col_no_offs", "add im2col_no_offs"])
def test_pixels_are_stored(built, name):
    extent, pixels = (4, 5, 3, 2), 22
    x = np.random.default_rng(3).integers(0, 1000, extent[::-1]).astype(np.int32)
    new = np.random.default_rng(4).integers(0, 1000, (pixels, 4)).astype(np.int32)
    lower, upper, at = (-1, 0), (0, 0), (0, 2, 1, 0)
    memory, y = tensor(x), tensor(new)
    values = {"extent": extent, "strides": strides_of(x), "lower": lower, "upper": upper, "at": at}
    values |= {"channels": 4, "pixels": pixels}
    assert run(built, name, y, memory, 1, S32, 0, 4, direction=1, **values) == 0
    expected = x.copy()
    for line, place in enumerate(pixels_of(extent, lower, upper, at, (1,) * 4, pixels)):
        if all(0 <= i < n for i, n in zip(place, extent[1:], strict=True)):
            place = place[::-1]
            expected[place] = new[line] + x[place] * name.startswith("add")
    assert memory.numpy().view(np.int32).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("name", "kind", "extent", "corners", "at", "step", "pixels", "halo", "offset"),
    [
        ("im2col::w", 2, (32, 7, 9, 20), (0, 0), (0, 0, 2, 7), 1, 64, 2, 0),
        ("im2col::w", 2, (32, 67, 9, 2), (-1, 0), (0, -1, 2, 0), 2, 30, 1, 0),
        ("im2col::w", 2, (32, 67, 9, 2), (-1, 0), (0, -1, 2, 0), 2, 30, 0, 1),
        ("im2col::w", 2, (32, 7, 7, 30), (-1, -1), (0, -1, 2, 7), 3, 40, 0, 2),
        ("im2col::w 3", 2, (32, 12, 6), (-1, -1), (0, 3, 1), 1, 31, 3, 1),
        ("im2col::w::128", 3, (32, 40, 3, 9), (0, 0), (0, 1, 1, 0), 1, 128, 2, 0),
    ],
)
def test_pixels_along_rows_have_halos(
    built, name, kind, extent, corners, at, step, pixels, halo, offset
):
    x, rank = image(*extent), len(extent)

    def line(w: int, rest) -> list:
        return [element(x, c, w + offset, *rest) for c in range(32)]

    row = [*range(corners[0], extent[1] + corners[1], step)]
    every = [(w, *at[2:-1], n) for n in range(at[-1], extent[-1] + 40) for w in row]
    first = every.index(tuple(at[1:]))
    expected = []
    for number, (w, *rest) in enumerate(every[first : first + pixels], 1):
        expected.append(line(w, rest))
        if number % 32 == 0 if kind == 3 else number == pixels:
            expected += [line(w + i * step, rest) for i in range(1, halo + 1)]
    y = empty(len(expected) * 64)
    values = {"extent": extent, "strides": strides_of(x), "lower": corners[:1], "at": at}
    values |= {"upper": corners[1:], "steps": (1, step), "channels": 32, "pixels": pixels}
    values["shifts"] = (halo, offset)
    assert run(built, name, y, tensor(x), kind, U16, 2, rank, **values) == 0
    chunks = words(y, len(expected), 4, 8)
    got = [
        np.ravel([chunks[n, chunk ^ (n * 64 >> 7 & 3)] for chunk in range(4)]).tolist()
        for n in range(len(expected))
    ]
    assert got == expected


def test_a_map_for_another_mode_is_refused(built):
    x = image(16, 7, 5, 3)
    values = {"extent": (16, 7, 5, 3), "strides": strides_of(x), "channels": 8, "pixels": 4}
    with pytest.raises(RuntimeError, match="one of im2col, not of cuTensorMapEncodeTiled"):
        run(built, "tile", empty(256), tensor(x), 1, U16, 0, 4, **values)
    with pytest.raises(RuntimeError, match="made for im2col, im2col::w or im2col::w::128"):
        run(built, "im2col::w", empty(256), tensor(x), 1, U16, 0, 4, **values)


# ---- Packed elements


@pytest.mark.parametrize(
    ("type_", "swizzle"), [(U4, 0), (U4, 2), (U4_PADDED, 0), (U4_PADDED, 3), (U6_PADDED, 3)]
)
def test_packed_elements_come_as_tensor_cores_want_them(built, type_, swizzle):
    rows, before, after = 6, {U6_PADDED: 12}.get(type_, 8), {U4: 8}.get(type_, 16)
    row_bytes = 256 // 16 * before
    x = np.random.default_rng(5).integers(1, 127, (rows, row_bytes)).astype(np.int8)
    y = empty(4 * 8 * after)
    values = {"extent": (256, rows), "strides": [row_bytes], "box": (128, 4), "at": (128, 3)}
    assert run(built, "tile", y, tensor(x), 0, type_, swizzle, 2, **values) == 0
    got = y.numpy().reshape(-1, 16)
    order = np.arange(len(got))
    if swizzle:
        order ^= order >> 3 & (8 >> (3 - swizzle)) - 1
    got = got[order].reshape(4, 8, after)
    assert got[:3, :, :before].reshape(3, -1).tolist() == x[3:, row_bytes // 2 :].tolist()
    assert not got[3].any()  # past the last row


def test_elements_of_6_bits_are_stored(built):
    x = np.zeros((4, 192), np.int8)
    new = np.random.default_rng(6).integers(1, 127, (2, 8, 16)).astype(np.int8)
    memory = tensor(x)
    values = {"extent": (256, 4), "strides": [192], "box": (128, 2), "at": (128, 1)}
    assert run(built, "tile", tensor(new), memory, 0, U6_PADDED, 0, 2, direction=1, **values) == 0
    x[1:3, 96:] = new[:, :, :12].reshape(2, 96)
    assert memory.tolist() == x.reshape(-1).tolist()


def test_padded_elements_of_4_bits_are_not_stored(built):
    values = {"extent": (256, 4), "strides": [128], "box": (128, 2)}
    with pytest.raises(RuntimeError, match="16U4_ALIGN16B are loaded, and not stored"):
        run(built, "tile", empty(256), empty(512), 0, U4_PADDED, 0, 2, direction=1, **values)


@pytest.mark.parametrize(("swizzle", "atom"), [(4, 32), (5, 32), (6, 64)])
def test_a_swizzle_of_larger_atoms(built, swizzle, atom):
    x = image(64, 16)
    y = empty(16 * 128)
    values = {"extent": (64, 16), "strides": [128], "box": (64, 16)}
    assert run(built, "tile", y, tensor(x), 0, U16, swizzle, 2, **values) == 0
    got, lines = y.numpy().view(np.uint64).reshape(16, 16), x.view(np.uint64)
    eights = atom // 8
    for line, eight in itertools.product(range(16), range(16)):
        chunk = eight // eights ^ line % (128 // atom)
        place = chunk * eights + (eight % eights ^ (swizzle == 5 and line % 2))
        assert got[line, place] == lines[line, eight]


# ---- What the driver refuses

PACKED = {"extent": (256, 8), "strides": [128], "box": (128, 4)}
PIXELS = {
    "extent": (16, 7, 5, 3),
    "strides": (32, 224, 1120),
    "lower": (-1, -1),
    "upper": (-1, -1),
    "channels": 16,
    "pixels": 64,
}
WIDE = PIXELS | {"extent": (32, 7, 5, 3), "strides": (64, 448, 2240), "channels": 32}


@pytest.mark.parametrize(
    ("kind", "type_", "swizzle", "rank", "good", "changed", "offset"),
    [
        (0, U4_PADDED, 3, 2, PACKED, {}, 0),
        (0, U4_PADDED, 3, 2, PACKED, {"extent": (192, 8)}, 0),
        (0, U4_PADDED, 3, 2, PACKED, {"box": (64, 4)}, 0),
        (0, U4_PADDED, 3, 2, PACKED, {"strides": [144]}, 0),
        (0, U4_PADDED, 3, 2, PACKED, {}, 16),
        (0, U4_PADDED, 2, 2, PACKED, {}, 0),
        (0, U4_PADDED, 6, 2, PACKED, {}, 0),
        (0, U6_PADDED, 6, 2, PACKED, {"strides": [192]}, 0),
        (0, U6_PADDED, 5, 2, PACKED, {"strides": [192]}, 0),
        (0, U4, 2, 2, PACKED, {}, 0),
        (0, U4, 1, 2, PACKED, {}, 0),
        (0, U4, 2, 2, PACKED, {"extent": (255, 8)}, 0),
        (0, U4, 2, 2, PACKED, {"box": (48, 4)}, 0),
        (0, U4, 2, 2, PACKED, {}, 16),
        (1, U16, 1, 4, PIXELS, {}, 0),
        (1, U16, 1, 2, PIXELS, {}, 0),
        (1, U16, 1, 4, PIXELS, {"channels": 257}, 0),
        (1, U16, 1, 4, PIXELS, {"channels": 32}, 0),
        (1, U16, 1, 4, PIXELS, {"channels": 12}, 0),
        (1, U16, 1, 4, PIXELS, {"pixels": 1025}, 0),
        (1, U16, 1, 4, PIXELS, {"lower": (-129, 0)}, 0),
        (1, U16, 1, 4, PIXELS, {"upper": (-8, 0)}, 0),
        (2, U16, 2, 4, WIDE, {}, 0),
        (2, U16, 2, 4, WIDE, {"lower": (-129,)}, 0),
        (2, U16, 0, 4, WIDE, {}, 0),
        (2, U16, 5, 4, WIDE, {}, 0),
        (3, U16, 2, 4, WIDE, {"pixels": 2000}, 0),
    ],
)
def test_a_tensor_map_is_taken_or_refused_by_the_drivers_rules(
    built, kind, type_, swizzle, rank, good, changed, offset
):
    is_wide_corner = changed == {"lower": (-129,)}
    is_taken = not changed and not offset
    taken = {(0, U4_PADDED, 2), (0, U4_PADDED, 6), (0, U4, 1), (2, U16, 0), (2, U16, 5)}
    is_taken = is_taken and (kind, type_, swizzle) not in taken and rank != 2 - (kind == 0) * 9
    is_taken |= is_wide_corner or changed == {"pixels": 2000} or (type_ == U4 and offset == 16)
    is_taken |= (type_, swizzle) == (U6_PADDED, 6)
    x = torch.zeros(1 << 14, dtype=torch.int8)
    x = x[-x.data_ptr() % 64 + offset :]
    arguments = parameters(**(good | changed))
    assert built.run(empty(16), x, 3, 0, 0, kind, type_, swizzle, rank, arguments) == int(
        not is_taken
    )


# ---- Maps that a kernel changes, and the checker


def test_a_kernel_changes_a_map(built):
    x = image(64, 8)
    memory = torch.cat([tensor(x), torch.zeros(8192, dtype=torch.int8)])
    maps = torch.zeros(256, dtype=torch.int8)
    y = empty(512)
    values = parameters(extent=(16, 2), strides=[16], box=(16, 1))
    assert built.run_changed(y, memory, maps[-maps.data_ptr() % 64 :], values) == 0
    lines = y.numpy().reshape(4, 4, 32)
    for line in range(4):
        ordered = [lines[line, chunk ^ line].tolist() for chunk in range(4)]
        assert np.ravel(ordered).tolist() == x[2 + line].view(np.int8).tolist()


def test_prefetches_run(built):
    x = image(32, 20)
    values = parameters(extent=(32, 20), strides=strides_of(x), box=(16, 1))
    assert built.run(empty(16), tensor(x), 2, 0, 0, 0, U16, 0, 2, values) == 0


@pytest.mark.parametrize(("rows", "found"), [(20, []), (40, ["out of bounds"])])
def test_the_checker_finds_rows_past_the_memory(built, rows, found):
    """A map that says more rows than its tensor has."""
    x = image(32, 20)
    values = {
        "extent": (32, rows),
        "strides": strides_of(x),
        "box": (16, 1),
        "at": (0, 1, 30, 2, 3),
    }
    which = list(LOADS).index("gather4")
    report = lab.check(
        built.run, empty(128), tensor(x), 0, which, 128, 0, U16, 0, 2, parameters(**values)
    )
    assert list(report.findings["kind"]) == found, str(report)
