"""`tcgen05.mma` of e2m1 with block scales, and `tcgen05.cp`, on bytes as a quantizer makes them, against exact sums."""

from __future__ import annotations

from fractions import Fraction

import exact_floats as exact
import ml_dtypes
import numpy as np
import pytest
from cuda_source import buffer, module
from tcgen05_source import FUNCTIONS, matrix, scaled_instruction, write_out

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("tcgen05.")

# One block: A is 128 rows, B `columns`, K 64 for each turn, in rows of 128 swizzled bytes. Scales lie as GEMMs want
# them, 512 bytes for 128 rows and 4 blocks of K, and tcgen05.cp puts them into tensor memory, A's from column 256 on
# and B's from 384 on.
PRODUCT = (
    FUNCTIONS
    + r"""
__device__ void product(u32 d, u64 a, u64 b, u32 which, u32 added, u32 sa, u32 sb) { SCALED("KIND"); }
extern "C" __global__ void k(const uint4* in_a, const uint4* in_b, const uint4* in_sa, const uint4* in_sb, u32* out,
                             u64 rows, u64 tile, int columns, int turns, int advance, u32 which) {
  __shared__ alignas(1024) uint4 s[4][1024];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (t < 32) { allocate(&where, 512); relinquish(); }
  if (!t) init(done, 1);
  for (int i = t; i < 1024; i += 128) {
    s[0][i] = in_a[i];
    s[1][i] = in_b[i];
    s[2][i] = in_sa[i];
    s[3][i] = in_sb[i];
  }
  fence();
  __syncthreads();
  const u32 d = where;
  if (!t) {
    for (int i = 0; i < turns; ++i) {
      copy_scales(d + 256 + 4 * i, tile + (at(s[2]) >> 4) + i * (512 >> 4));
      copy_scales(d + 384 + 4 * i, tile + (at(s[3]) >> 4) + i * (512 >> 4));
    }
    for (int i = 0; i < turns; ++i) {
      const u32 at_scale = i / advance, id = i % advance << 1;
      product(d, rows + (at(s[0]) >> 4) + i * (32 >> 4), rows + (at(s[1]) >> 4) + i * (32 >> 4),
              which | id << 29 | id << 4, i > 0, d + 256 + 4 * at_scale, d + 384 + 4 * at_scale);
    }
    arrive_when_done(done);
  }
"""
    + write_out("columns", 512)
)

COPY = (
    FUNCTIONS
    + r"""
extern "C" __global__ void k(const u32* in, u32* out, u64 rows, int words) {
  __shared__ alignas(128) u32 s[2048];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (t < 32) allocate(&where, 32);
  if (!t) init(done, 1);
  for (int i = t; i < 2048; i += 128) s[i] = in[i];
  fence();
  __syncthreads();
  const u32 d = where;
  if (!t) {
    asm volatile("tcgen05.cp.cta_group::1.NAME [%0], %1;" :: "r"(d), "l"(rows + (at(s) >> 4)) : "memory");
    arrive_when_done(done);
  }
"""
    + write_out("words", 32)
)


def swizzled(data: np.ndarray) -> np.ndarray:
    """Rows of at most 128 bytes as the manual's 128-byte swizzle has them, 16 KiB."""
    out = np.zeros(1 << 14, np.uint8)
    for row, line in enumerate(data):
        for byte, value in enumerate(line):
            at = row * 128 + byte
            out[at ^ (at >> 7) % 8 << 4] = value
    return out


def tiles(scales: np.ndarray) -> np.ndarray:
    """Scale bytes padded to tiles of 128x4, each with the bytes of rows r, r + 32, r + 64, r + 96 side by side."""
    lines, blocks = scales.shape
    out = np.zeros((-(-lines // 128), -(-blocks // 4), 32, 4, 4), np.uint8)
    for line, block in np.ndindex(lines, blocks):
        out[line // 128, block // 4, line % 32, line % 128 // 32, block % 4] = scales[line, block]
    return out


def multiply(
    codes: tuple[np.ndarray, np.ndarray], scales: tuple[np.ndarray, np.ndarray], blocks: int, kind: str = "mxf4nvf4",
    ue8m0: bool = False, words: str = ".scale_vec::4X", without: str = "never",
) -> np.ndarray:  # fmt: skip
    """D (128, columns) uint32. codes: (rows, k / 2) uint8, two in a byte; scales: as `tiles`; blocks: of a row

    without: what a line begins with that is left out
    """
    columns, turns = len(codes[1]), codes[0].shape[1] // 32
    stored = [np.pad(np.ascontiguousarray(each).reshape(-1), (0, (1 << 14) - each.size)) for each in scales]
    # Scales of 32 elements take 2 bytes for each turn, so a column lasts for two turns.
    advance = 4 * turns // blocks
    out = np.zeros((128, columns), np.uint32)
    args = [
        *(buffer(name, swizzled(each)) for name, each in zip("ab", codes, strict=True)),
        *(buffer(name, each) for name, each in zip(("sa", "sb"), stored, strict=True)), buffer("out", out),
        matrix(0, 0, 1024, 1).to_bytes(8, "little"), matrix(0, 0, 128).to_bytes(8, "little"), columns, turns, advance,
        scaled_instruction(columns, ue8m0).to_bytes(4, "little"),
    ]  # fmt: skip
    source = PRODUCT.replace('"KIND"', f'"{kind}.block_scale{words}"').replace(without, f"// {without}")
    launch(module(source, "sm_100a"), "k", (1, 1, 1), (128, 1, 1), args)
    return out


def sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of 64 products of decoded values, each exact and rounded once to float32 with what came before."""
    out = np.zeros((len(a), len(b)), np.uint32)
    left, right = ([[Fraction(float(value)) for value in line] for line in each] for each in (a, b))
    for row, column in np.ndindex(out.shape):
        for k in range(0, a.shape[1], 64):
            parts = zip(left[row][k : k + 64], right[column][k : k + 64], strict=True)
            total = exact.of(sum((x * y for x, y in parts), exact.decode(int(out[row, column]), exact.F32).value))
            out[row, column] = exact.encode(total, exact.F32)
    return out


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def e2m1(codes: np.ndarray) -> np.ndarray:
    """The values of two codes in each byte, the first in its low bits."""
    return E2M1[np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)]


def e4m3(scales: np.ndarray) -> np.ndarray:
    return scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def quantized(lines: int, depth: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes and scales, as `tiles`, of normal numbers in scaling blocks of 16, and the values that they stand for."""
    x = np.random.default_rng(seed).standard_normal((lines, depth // 16, 16)) * 3
    scales = (np.abs(x).max(axis=2) / 6).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    nearest = np.abs((x / e4m3(scales)[..., None])[..., None] - E2M1).argmin(axis=3).astype(np.uint8)
    pairs = nearest.reshape(lines, -1, 2)
    codes = pairs[..., 0] | pairs[..., 1] << 4
    return codes, tiles(scales), e2m1(codes) * np.repeat(e4m3(scales), 16, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("columns, depth", [(32, 64), (128, 64), (48, 256), (16, 128)])
def test_a_product_of_what_the_quantizer_makes(columns: int, depth: int) -> None:
    (a, scale_a, value_a), (b, scale_b, value_b) = quantized(128, depth, 1), quantized(columns, depth, 2)
    got = multiply((a, b), (scale_a, scale_b), depth // 16)
    rows = slice(None, None, 1 if columns * depth < 5000 else 9)
    assert (got[rows] == sums(value_a[rows], value_b)).all()


def drawn(columns: int, depth: int, block: int, low: int, high: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """Codes of A and B, and scale bytes from `low` to `high`, compact."""
    rng = np.random.default_rng(columns + depth)
    codes = tuple(rng.integers(0, 256, (lines, depth // 2), np.uint8) for lines in (128, columns))
    return codes, tuple(rng.integers(low, high, (lines, depth // block), np.uint8) for lines in (128, columns))


def decoded(codes: np.ndarray, scales: np.ndarray, ue8m0: bool) -> np.ndarray:
    factors = 2.0 ** (scales.astype(np.float64) - 127) if ue8m0 else e4m3(scales)
    return e2m1(codes) * np.repeat(factors, 2 * codes.shape[1] // scales.shape[1], axis=1)


FORMS = [
    ("mxf4nvf4", ".scale_vec::4X", 16, False, (0, 0x7F)),
    ("mxf4nvf4", ".block16", 16, True, (100, 150)),
    ("mxf4nvf4", ".scale_vec::2X", 32, True, (120, 135)),
    ("mxf4nvf4", ".block32", 32, True, (60, 190)),  # sums that do not fit a float64
    ("mxf4", "", 32, True, (120, 135)),
    ("mxf4", ".scale_vec::2X", 32, True, (120, 135)),
    ("mxf4", ".block32", 32, True, (120, 135)),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind, words, block, ue8m0, scales", FORMS)
def test_every_form(kind: str, words: str, block: int, ue8m0: bool, scales: tuple[int, int]) -> None:
    """Any codes, among them -0, and any scales. Two columns of scales of 16, or two instructions with one of 32."""
    codes, factors = drawn(24, 128, block, *scales)
    got = multiply(codes, tuple(map(tiles, factors)), 128 // block, kind, ue8m0, words)
    right = sums(*(decoded(each, scale, ue8m0) for each, scale in zip(codes, factors, strict=True)))
    assert (got == right).all()


def test_a_scale_that_is_no_number() -> None:
    codes, factors = drawn(16, 64, 16, 8, 100)
    factors[0][5, 2] = 0x7F
    got = multiply(codes, tuple(map(tiles, factors)), 4)
    assert (got[5] == 0x7FFFFFFF).all()
    assert (got[np.arange(128) != 5] != 0x7FFFFFFF).all()


def test_scales_with_a_sign_are_refused() -> None:
    codes, factors = drawn(16, 64, 16, 8, 100)
    factors[1][0, 0] = 0x80
    with pytest.raises(NotEmulated, match="not emulated: tcgen05.mma.* with a negative scale"):
        multiply(codes, tuple(map(tiles, factors)), 4)


def test_scales_that_no_copy_brought() -> None:
    codes, factors = drawn(16, 64, 16, 8, 100)
    with pytest.raises(Fault, match="reads lane 0, column 256 of tensor memory, which nothing wrote") as found:
        multiply(codes, tuple(map(tiles, factors)), 4, without="copy_scales(d + 256 + 4 * i")
    assert found.value.kind == "unwritten_read"


@pytest.mark.parametrize("name, rows, words", [("128x256b", 128, 8), ("128x128b", 128, 4)])
def test_a_copy_of_rows(name: str, rows: int, words: int) -> None:
    """Rows of 16 or 32 bytes, in core matrices of 8 rows, to a lane each."""
    source = COPY.replace("NAME", name)
    data = np.random.default_rng(4).integers(0, 1 << 32, (rows, words), np.uint32)
    stored = np.zeros(2048, np.uint32)
    for row, column in np.ndindex(rows, words):
        stored[(row // 8 * 256 + column // 4 * 128 + row % 8 * 16) // 4 + column % 4] = data[row, column]
    out = np.zeros((128, words), np.uint32)
    described = matrix(0, 128, 256).to_bytes(8, "little")
    launch(module(source, "sm_100a"), "k", (1, 1, 1), (128, 1, 1),
           [buffer("in", stored), buffer("out", out), described, words])  # fmt: skip
    assert (out == data).all()
