"""`tcgen05.mma` of 16-bit floats against exact sums, its matrices laid out by the manual's formulas, and its faults."""

from __future__ import annotations

import re

import exact_floats as exact
import numpy as np
import pytest
from cuda_source import buffer, line_of, module
from tcgen05_source import FUNCTIONS, instruction, lane_of, matrix, write_out
from test_mma import exact_sums, finite_edges
from wgmma_source import PITCH, encoded, image, image_across

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

pytestmark = pytest.mark.covers("tcgen05.")

# A block multiplies A by B, `turns` times 16 deep. D lies in columns from 0 on; A, if in tensor memory, from 256 on.
PRODUCT = (
    FUNCTIONS
    + r"""
extern "C" __global__ void k(const uint4* in_a, int size_a, const uint4* in_b, int size_b, u32* out, u64 from_a,
                             u64 from_b, int step_a, int step_b, int turns, int added, u32 which, int columns) {
  extern __shared__ __align__(1024) uint4 s[];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  uint4* const b = s + size_a;
  if (t < 32) { allocate(&where, 512); relinquish(); }
  if (!t) init(done, 1);
  for (int i = t; i < size_a; i += 128) s[i] = in_a[i];
  for (int i = t; i < size_b; i += 128) b[i] = in_b[i];
  fence();
  __syncthreads();
  const u32 d = where;
  for (int j = 0; j < columns; ++j) tensor_store(d + mine + j, out[t * columns + j]);
  for (int j = 0; IN_TENSOR && j < 8 * turns; ++j) tensor_store(d + mine + 256 + j, ((u32*)in_a)[t * 8 * turns + j]);
  wait_st();
  __syncthreads();
  if (!t) {
    from_a += at(s) >> 4;
    from_b += at(b) >> 4;
    for (int i = 0; i < turns; ++i) {
      const u64 right = from_b + i * (step_b >> 4);
      MULTIPLY;
    }
    arrive_when_done(done);
  }
"""
    + write_out("columns", 512)
)
HOW = {
    "shared": "multiply(d, from_a + i * (step_a >> 4), right, which, added || i)",
    "tensor": "multiply_tensor(d, d + 256 + i * 8, right, which, added || i)",
    "some": "multiply_some(d, from_a + i * (step_a >> 4), right, which, added || i, 1, 0, 0xFFFF0000, 1u << 31)",
}


def run_product(
    out: np.ndarray, matrices: tuple[list, ...], turns: int, added: int, which: int, kind: str, how: str, **options
) -> None:
    """matrices: of A and of B, the bytes, the 16 bytes that shared memory has of them, descriptors, and steps"""
    images, sizes, described, steps = matrices
    source = PRODUCT.replace("IN_TENSOR", str(int(how == "tensor"))).replace("MULTIPLY", HOW[how])
    source = source.replace("kind::f16", "kind::" + {"tf": "tf32", "e4": "f8f6f4", "e5": "f8f6f4"}.get(kind[:2], "f16"))
    args = [
        buffer("a", images[0]), sizes[0], buffer("b", images[1]), sizes[1], buffer("out", out),
        *(each.to_bytes(8, "little") for each in described), *steps, turns, added, which.to_bytes(4, "little"),
        out.shape[1],
    ]  # fmt: skip
    launch(module(source, "sm_100a"), "k", (1, 1, 1), (128, 1, 1), args, 16 * sum(sizes), **options)


def multiply(
    a: np.ndarray, b: np.ndarray, d: np.ndarray, kind: str = "bf16", mode: int = 0, how: str = "shared", added: int = 1,
    signs: tuple[int, int] = (1, 1), across: tuple[int, int] = (0, 0), **options,
) -> np.ndarray:  # fmt: skip
    """D (rows, columns), patterns of float32.

    a: (rows, k), b: (columns, k) uint16 patterns, or rows of others as such; d: what is added to; k fits one row of a
    swizzling pattern, unless across
    """
    (rows, depth), columns = a.shape, len(b)
    turns, images, described, steps = depth // 16, [], [], []
    for each, transposed in ((a, across[0]), (b, across[1])):
        if transposed and mode:
            leading, stride = depth // 8 * 8 * PITCH[mode], 8 * PITCH[mode]
            step = 2 * stride
        elif transposed:
            leading, stride = len(each) // 8 * 144, 144
            step = 2 * leading
        else:
            leading, stride = (len(each) * 16 + 128, 144) if mode == 0 else (0, 8 * PITCH[mode])
            step = 2 * leading if mode == 0 else 32
            if mode == 0:
                leading = step // 2 if leading > len(each) * 18 else len(each) * 18 + 32
                step = 2 * leading
        stored = (image_across if transposed else image)(each, mode, leading, stride)
        images.append(np.pad(stored, (0, -len(stored) % 1024)))
        described.append(matrix(0, leading, stride, mode))
        steps.append(step)
    size_a = len(images[0]) // 16
    if how == "tensor":
        words, size_a = np.zeros((128, 8 * turns), np.uint32), 0
        for row in range(rows):
            words[lane_of(row, rows)] = np.ascontiguousarray(a[row]).view(np.uint32)
        images[0] = words
    out = np.full((128, columns), 0x7FC00000, np.uint32)
    lanes = [lane_of(row, rows) for row in range(rows)]
    out[lanes] = d
    matrices = images, [size_a, len(images[1]) // 16], described, steps
    run_product(out, matrices, turns, added, instruction(rows, columns, kind, signs, across), kind, how, **options)
    others = np.setdiff1d(np.arange(128), lanes)
    assert (out[others] == 0x7FC00000).all()  # lanes that are no row keep what they had
    return out[lanes]


def integers(rows: int, columns: int, depth: int, kind: str) -> tuple[np.ndarray, ...]:
    """Operands, and their product as float32: small integers, so that the sum is exact."""
    rng = np.random.default_rng(columns + depth)
    a, b = rng.integers(-60, 60, (rows, depth)), rng.integers(-60, 60, (columns, depth))
    d = rng.integers(-1000, 1000, (rows, columns))
    return encoded(a, kind), encoded(b, kind), d.astype(np.float32).view(np.uint32), (d + a @ b.T).astype(np.float32)


@pytest.mark.parametrize("how", ["shared", "tensor"])
@pytest.mark.parametrize("kind, rows, columns", [("bf16", 128, 16), ("f16", 128, 48), ("f16", 64, 8), ("bf16", 64, 40)])
def test_core_matrices(kind: str, rows: int, columns: int, how: str) -> None:
    a, b, d, wanted = integers(rows, columns, 48, kind)
    assert (multiply(a, b, d, kind, how=how).view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode, depth", [(1, 64), (2, 32), (3, 16)])
def test_swizzled_rows(mode: int, depth: int) -> None:
    a, b, d, wanted = integers(128, 32, depth, "bf16")
    assert (multiply(a, b, d, mode=mode).view(np.float32) == wanted).all()


@pytest.mark.sweep
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("across", [(0, 1), (1, 0), (1, 1)])
def test_transposed(mode: int, across: tuple[int, int]) -> None:
    depth = 32 if mode == 0 or all(across) else PITCH[mode] // 2
    a, b, d, wanted = integers(128, 64, depth, "f16")
    assert (multiply(a, b, d, "f16", mode, across=across).view(np.float32) == wanted).all()


@pytest.mark.parametrize("signs, sign", [((-1, 1), -1), ((1, -1), -1), ((-1, -1), 1)])
def test_negated_operands(signs: tuple[int, int], sign: int) -> None:
    a, b, d, wanted = integers(128, 16, 16, "f16")
    got = multiply(a, b, np.zeros_like(d), "f16", signs=signs).view(np.float32)
    assert (got == sign * (wanted - d.view(np.float32))).all()


def test_the_first_product_may_replace_what_there_was() -> None:
    a, b, d, wanted = integers(128, 16, 32, "bf16")
    got = multiply(a, b, np.full_like(d, 0x7FC00000), added=0).view(np.float32)
    assert (got == wanted - d.view(np.float32)).all()


def test_lanes_that_are_not_written() -> None:
    a, b, d, wanted = integers(128, 16, 32, "bf16")
    got = multiply(a, b, d, how="some").view(np.float32)
    kept = [0, *range(80, 96), 127]
    assert (got[kept] == d.view(np.float32)[kept]).all()
    rest = np.setdiff1d(np.arange(128), kept)
    assert (got[rest] == wanted[rest]).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sums_are_exact(kind: str) -> None:
    """The sums are rounded once. The operands have all exponents: sums cancel, overflow, or do not fit a float64."""
    rng = np.random.default_rng(3)
    pool = finite_edges(kind)
    a, b = rng.choice(pool, (128, 16)), rng.choice(pool, (16, 16))
    a[::3, 1], b[::3, 1] = a[::3, 0] ^ 0x8000, b[::3, 0]
    a, b, d = a.astype(np.uint16), b.astype(np.uint16), rng.choice(finite_edges("f32"), (128, 16)).astype(np.uint32)
    assert multiply(a, b, d, kind).tolist() == exact_sums(kind, a[None], b.T[None], d[None])[0].tolist()


def as_pairs(bits: np.ndarray) -> np.ndarray:
    """Rows of any elements as rows of uint16."""
    return np.ascontiguousarray(bits).view(np.uint16)


BYTES = np.delete(np.arange(256), [0x7F, 0xFF]).astype(np.uint8)  # finite e4m3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shared", "tensor"])
@pytest.mark.parametrize("kind, rows, mode", [("e4m3", 128, 0), ("e5m2", 64, 1), ("e4m3,e5m2", 128, 2)])
def test_sums_of_bytes(kind: str, rows: int, mode: int, how: str) -> None:
    """32 deep for each instruction; every finite code of e4m3, and e5m2 up to 448, in sums of exact products."""
    rng = np.random.default_rng(6)
    kinds = (kind.split(",") * 2)[:2]
    kept = [0xFF if each == "e4m3" else 0xDF for each in kinds]
    a, b = (rng.choice(BYTES, (n, 32)) & np.uint8(bits) for n, bits in zip((rows, 16), kept, strict=True))
    d = rng.choice(finite_edges("f32"), (rows, 16)).astype(np.uint32)
    got = multiply(as_pairs(a), as_pairs(b), d, kind, mode, how)
    # e4m3 and e5m2 are f16 with fewer digits.
    a, b = (TO_F16[each][bits] for each, bits in zip(kinds, (a, b), strict=True))
    assert got.tolist() == exact_sums("f16", a[None], b.T[None], d[None])[0].tolist()


TO_F16 = {
    name: np.array([exact.encode(exact.decode(code, exact.FORMATS[name]), exact.F16) for code in range(256)], np.uint16)
    for name in ("e4m3", "e5m2")
}


@pytest.mark.parametrize("how", ["shared", "tensor"])
def test_sums_of_tf32(how: str) -> None:
    """8 deep; the last 13 bits of an element count for nothing."""
    rng = np.random.default_rng(7)
    a, b = (rng.choice(finite_edges("f32"), (n, 8)).astype(np.uint32) for n in (128, 16))
    a[::2], b[1::2] = (rng.normal(size=each.shape).astype(np.float32).view(np.uint32) for each in (a[::2], b[1::2]))
    d = rng.choice(finite_edges("f32"), (128, 16)).astype(np.uint32)
    got = multiply(as_pairs(a), as_pairs(b), d, "tf32", how=how)
    a, b = a & np.uint32(0xFFFFE000), b & np.uint32(0xFFFFE000)
    assert got.tolist() == exact_sums("f32", a[None], b.T[None], d[None])[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_bytes_across(mode: int) -> None:
    """A and B run along their rows, 16 of them in 16 bytes."""
    rng = np.random.default_rng(8)
    a, b = (rng.choice(BYTES, (n, 64)) for n in (128, 32))
    images, placed, steps = [], [], []
    for each in (a, b):
        leading, stride = (len(each) * 8, 128) if mode == 0 else (64 * PITCH[mode], 8 * PITCH[mode])
        images.append(np.pad(bytes_across(each, mode, leading, stride), (0, 1024)))
        placed.append(matrix(0, leading, stride, mode))
        steps.append(4 * (leading if mode == 0 else stride))
    images = [each[: len(each) // 1024 * 1024] for each in images]
    out, sizes = np.zeros((128, 32), np.uint32), [len(each) // 16 for each in images]
    which = instruction(128, 32, "e4m3", across=(1, 1))
    run_product(out, (images, sizes, placed, steps), 2, 0, which, "e4m3", "shared")
    a, b = (TO_F16["e4m3"][each] for each in (a, b))
    first = exact_sums("f16", a[None, :, :32], b.T[None, :32], np.zeros((1, 128, 32), np.uint32))
    assert out.tolist() == exact_sums("f16", a[None, :, 32:], b.T[None, 32:], first)[0].tolist()


def bytes_across(matrix: np.ndarray, mode: int, leading: int, stride: int) -> np.ndarray:
    """`image_across` for elements of one byte: 16 bytes hold 16 rows, and a swizzled run has PITCH rows."""
    out = np.zeros(1 << 15, np.uint8)
    for (row, k), value in np.ndenumerate(matrix):
        if mode:
            run, within = divmod(row, PITCH[mode])
            byte = run * leading + k // 8 * stride + k % 8 * PITCH[mode] + within
            byte ^= (byte >> 7) % (PITCH[mode] // 16) << 4
        else:
            byte = row // 16 * stride + k // 8 * leading + k % 8 * 16 + row % 16
        out[byte] = value
    return out


@pytest.mark.parametrize("order", [DESCENDING, Schedule(seed=1), Schedule(seed=2)], ids=str)
def test_other_orders(order: Schedule) -> None:
    a, b, d, wanted = integers(128, 16, 32, "bf16")
    assert (multiply(a, b, d, schedule=order).view(np.float32) == wanted).all()
    assert (multiply(a, b, d, schedule=order, sanitize=False).view(np.float32) == wanted).all()


# ---- faults ---------------------------------------------------------------------------------------------------------

# A small product of zeros. A pair differs by `@{bug||mend}@` in one of its holes alone.
SMALL = (
    FUNCTIONS
    + r"""
extern "C" __global__ void k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 done, other; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  const u64 a = MATRIX + (at(s) >> 4);
  if (t < 32) { allocate(&where, 64); relinquish(); }
  if (!t) { init(done, 1); init(other, 1); }
  for (int i = t; i < 128 * 64; i += 128) s[i] = 0;  // fill
  FENCE
  __syncthreads();
  const u32 d = where;
  STORED
  if (!t) {
    multiply(d, a, a, WHICH, ADDED);  // product
    AFTER
    arrive_when_done(done);
  }
  OTHER
  WAIT
  SEEN
  const u32 value = tensor_load(d + mine);  // loaded
  wait_ld();
  out[t] = value;
  BEFORE_END
  __syncthreads();
  if (t < 32) deallocate(d, 64);  // free
}
"""
)
HOLES = {
    "MATRIX": hex(matrix(0, 0, 1024, 1)) + "ull", "FENCE": "fence();", "STORED": "", "ADDED": "0", "AFTER": "",
    "WHICH": hex(instruction(128, 16)), "OTHER": "", "WAIT": "wait(done, 0);", "SEEN": "", "BEFORE_END": "",
}  # fmt: skip
AGAIN = "for (int i = 0; i < 8; ++i) s[t * 8 + i] = 1;  // again"
STORE = "tensor_store(d + mine, 0);  // stored"
LOAD = "tensor_load(d + mine);  // also"
PAIRS = {
    "the accumulator is read before the commit is waited for": (
        "WAIT", "@{||wait(done, 0);}@", "loaded", "product", "race", "reads lane .* of tensor memory that the "
        "tcgen05.mma of thread .* may still use: no thread that waited for the mbarrier of a tcgen05.commit"),
    "one thread waits for the commit": (
        "WAIT", "if (@{!t||t < 128}@) wait(done, 0);", "loaded", "product", "race", "may still use"),
    "a commit of another thread covers nothing": (
        "WAIT", "if (t == @{32||0}@) arrive_when_done(other);\n  wait(other, 0);", "loaded", "product", "race",
        "may still use"),
    "a register of a load that is read says nothing of tensor memory": (
        "SEEN", "u32 early = tensor_load(d + mine);  // early\n  if (early) out[0] = 1;\n  @{||wait_ld();}@\n"
        "  tensor_store(d + mine, 0);  // again\n  wait_st();",
        "again", "early", "race", "writes lane .* that the tcgen05.ld .* may still read: no tcgen05.wait::ld"),
    "no proxy fence": (
        "FENCE", "@{||fence();}@", "product", "fill", "race", "copies from shared bytes that .* with no fence.proxy"),
    "shared memory is written while a product may read it": (
        "OTHER", "@{||wait(done, 0);}@ " + AGAIN, "again", "product", "race", "may still read: no thread that waited"),
    "what one warp stored is not waited for": (
        "STORED", STORE + "\n  @{||wait_st();}@ __syncthreads();", "product", "stored", "race",
        "writes lane .* that the tcgen05.st .* may still write: no tcgen05.wait::st"),
    "a load is in flight when the product begins": (
        "STORED", "tensor_store(d + mine, 0); wait_st(); " + LOAD + "\n  @{||wait_ld();}@ __syncthreads();", "product",
        "also", "race", "writes lane .* that the tcgen05.ld .* may still read: no tcgen05.wait::ld"),
    "the columns are freed while another warp may read them": (
        "BEFORE_END", "u32 last = tensor_load(d + mine);  // last\n  @{||wait_ld();}@ if (t == 500) out[t] = last;",
        "free", "last", "race", "frees lane .* that the tcgen05.ld .* may still read"),
    "the product adds to what nothing wrote": (
        "ADDED", "@{1||0}@", "product", None, "unwritten_read", "reads lane 0, column 0 of tensor memory"),
    "more columns than were allocated": (
        "WHICH", f"@{{{instruction(128, 80):#x}||{instruction(128, 64):#x}}}@", "product", None, "out_of_bounds",
        "writes column 64 of tensor memory, which is not allocated"),
    "a matrix beyond shared memory": (
        "MATRIX", f"@{{{matrix(1 << 17, 0, 1024, 1):#x}ull||{matrix(0, 0, 1024, 1):#x}ull}}@", "product", None,
        "out_of_bounds", "of shared memory, which has"),
    "a shape that the manual does not have": (
        "WHICH", f"@{{{instruction(128, 24):#x}||{instruction(128, 16):#x}}}@", "product", None, "tensor_memory",
        "M = 128, N = 24"),
    "a descriptor of wgmma": (
        "MATRIX", f"@{{{matrix(0, 0, 1024, 1) & ~(1 << 46):#x}ull||{matrix(0, 0, 1024, 1):#x}ull}}@", "product", None,
        "tensor_memory", "whose bits 46 and 47 are 0"),
}  # fmt: skip


def small(**holes: str) -> str:
    source = SMALL
    for name, text in (HOLES | holes).items():
        source = re.sub(rf"\b{name}\b", lambda _, text=text: text, source)
    return source


def run_small(source: str, **options) -> np.ndarray:
    out = np.full(128, 7, np.uint32)
    launch(module(source, "sm_100a"), "k", (1, 1, 1), (128, 1, 1), [buffer("out", out)], **options)
    return out


@pytest.mark.parametrize("name", PAIRS)
def test_a_bug_is_a_fault_and_its_mend_is_none(name: str) -> None:
    hole, text, at, other, kind, says = PAIRS[name]
    bug, mend = (small(**{hole: re.sub(r"@\{(.*?)\|\|(.*?)\}@", part, text)}) for part in (r"\1", r"\2"))
    for order in (ASCENDING, DESCENDING, Schedule(seed=1)):
        assert (run_small(mend, schedule=order) == 0).all()
        with pytest.raises(Fault, match=says) as found:
            run_small(bug, schedule=order)
        assert found.value.kind == kind
        assert found.value.where == line_of(bug, f"// {at}") or f"inlined at {line_of(bug, f'// {at}')}" in str(
            found.value
        )
        assert other is None or line_of(bug, f"// {other}") in found.value.sentence


@pytest.mark.parametrize("address", ["&bar", "(u64)at(&bar)"], ids=["generic", "in shared memory"])
def test_a_commit_without_a_state_space(address: str) -> None:
    """The manual's address is generic then, and Triton 3.6 gives one in shared memory."""
    spelled = re.compile(r'\.shared::cluster(\.b64 \[%0\];"\s*:: )"r"\(at\(&bar\)\)')
    right, wrong = (spelled.sub(rf'\1"l"({address})', small(WAIT=wait)) for wait in (HOLES["WAIT"], ""))
    assert "arrive::one.b64" in right
    assert (run_small(right) == 0).all()
    with pytest.raises(Fault, match="may still use: no thread that waited for the mbarrier of a tcgen05.commit"):
        run_small(wrong)


CLUSTER = (
    FUNCTIONS
    + r"""
extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  const u64 a = MATRIX + (at(s) >> 4);
  if (t < 32) { allocate(&where, 64); relinquish(); }
  if (!t) init(done, 1);
  for (int i = t; i < 128 * 64; i += 128) s[i] = 0;
  fence();
  meet();
  if (!t && !rank()) {
    multiply(where, a, a, WHICH, 0);  // product
    const u32 bar = SPACE;
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                 :: "r"(bar), "h"((u16)MASK) : "memory");  // commit
  }
  if (WAITS) wait(done, 0);
  if (!t && rank()) asm volatile("st.shared::cluster.u32 [%0], 7;" :: "r"(in_block(s, 0)) : "memory");  // stored
  if (!rank()) {
    wait(done, 0);
    const u32 value = tensor_load(where + mine);
    wait_ld();
    out[t] = value;
  }
  meet();
  if (t < 32) deallocate(where, 64);
}
"""
)


def in_cluster(generic: bool = False, **holes: str) -> np.ndarray:
    source, out = CLUSTER, np.full(128, 7, np.uint32)
    if generic:
        source = source.replace(".shared::cluster.multicast", ".multicast").replace('"r"(bar), "h"', '"l"(&done), "h"')
    defaults = {"MATRIX": HOLES["MATRIX"], "WHICH": HOLES["WHICH"], "MASK": "3", "WAITS": "1", "SPACE": "at(&done)"}
    for name, text in (defaults | holes).items():
        source = re.sub(rf"\b{name}\b", lambda _, text=text: text, source)
    launch(module(source, "sm_100a"), "k", (2, 1, 1), (128, 1, 1), [buffer("out", out)])
    return out


@pytest.mark.parametrize("space", ["at(&done)", "in_block(&done, 1)"], ids=["its own", "a block's"])
def test_a_multicast_commit_arrives_in_every_block_of_its_mask(space: str) -> None:
    assert (in_cluster(SPACE=space) == 0).all()


def test_a_multicast_commit_with_a_generic_address() -> None:
    assert (in_cluster(generic=True) == 0).all()


@pytest.mark.parametrize(
    ("holes", "kind", "says"),
    [
        ({"WAITS": "!rank()"}, "race", r"writes 4 shared bytes that .* may still read"),
        ({"MASK": "1"}, "deadlock", "waits for parity 0 for ever"),
        ({"MASK": "7"}, "out_of_bounds", "of shared memory of block 2 of a cluster of 2"),
    ],
    ids=["not waited for", "one block alone", "a block that is not there"],
)
def test_faults_of_a_multicast_commit(holes: dict[str, str], kind: str, says: str) -> None:
    with pytest.raises(Fault, match=says) as found:
        in_cluster(**holes)
    assert found.value.kind == kind


@pytest.mark.parametrize("hole, given, bit", [
    ("WHICH", instruction(128, 16), 4), ("WHICH", instruction(128, 16), 7), ("WHICH", 0, 2),
    ("MATRIX", matrix(0, 0, 1024, 1), 61), ("MATRIX", matrix(0, 0, 1024, 1), 49),
])  # fmt: skip
def test_other_descriptors_are_refused(hole: str, given: int, bit: int) -> None:
    says = "the instruction descriptor" if hole == "WHICH" else "(a matrix base offset|the matrix desc)"
    with pytest.raises(NotEmulated, match=f"not emulated: tcgen05.mma.* with {says}"):
        run_small(small(**{hole: f"{given ^ 1 << bit:#x}{'' if hole == 'WHICH' else 'ull'}"}))
