"""Loads, stores and atomics: widths, vectors, spaces, address arithmetic, order, and what survives a launch."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, module, ptx
from expectations import expected
from operands import draw
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

THREAD = " mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];\n"


@pytest.mark.covers("ld.global.")
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_narrow_loads_extend(size: int, signed: bool) -> None:
    kind = f"{'s' if signed else 'u'}{8 * size}"
    body = THREAD + f" mad.wide.u32 %rd2, %r0, {size}, %rd0; mad.wide.u32 %rd3, %r0, 8, %rd1;\n"
    body += f" ld.global.{kind} %rd4, [%rd2]; st.global.u64 [%rd3], %rd4;"
    source = np.random.default_rng(size).integers(0, 256, 32 * size, dtype=np.uint8)
    out = np.zeros(32, np.uint64)
    run(kernel(body, 2), {"in": source, "out": out})
    typed = source.view(f"{'i' if signed else 'u'}{size}")
    assert (out == (typed.astype(np.int64).view(np.uint64) if signed else typed)).all()


@pytest.mark.covers("st.global.")
@pytest.mark.parametrize("store_size", [1, 2, 4, 8])
def test_narrow_stores_truncate(store_size: int) -> None:
    body = THREAD + f" mad.wide.u32 %rd2, %r0, 8, %rd0; mad.wide.u32 %rd3, %r0, {store_size}, %rd1;\n"
    body += f" ld.global.u64 %rd4, [%rd2]; st.global.u{8 * store_size} [%rd3], %rd4;"
    source = np.random.default_rng(7).integers(0, 1 << 63, 32, dtype=np.uint64)
    out = np.zeros(32 * store_size, np.uint8)
    run(kernel(body, 2), {"in": source, "out": out})
    assert (out == source.view(np.uint8).reshape(32, 8)[:, :store_size].reshape(-1)).all()


@pytest.mark.covers("ld.global.", "st.global.")
@pytest.mark.parametrize(
    "kind, count", [("u8", 4), ("u16", 2), ("u16", 4), ("b32", 2), ("f32", 4), ("b32", 8), ("u64", 2), ("b64", 4)]
)
def test_vectors(kind: str, count: int) -> None:
    size = int(kind[1:]) // 8
    prefix = {1: "%rs", 2: "%rs", 4: "%r1", 8: "%rd1"}[size]
    there = ", ".join(f"{prefix}{i}" for i in range(count))
    back = ", ".join(f"{prefix}{i}" for i in reversed(range(count)))
    width = size * count
    body = THREAD + f" mad.wide.u32 %rd2, %r0, {width}, %rd0; mad.wide.u32 %rd3, %r0, {width}, %rd1;\n"
    body += f" ld.global.nc.L1::no_allocate.L2::128B.v{count}.{kind} {{{there}}}, [%rd2];\n"
    body += f" st.global.cs.v{count}.{kind} [%rd3], {{{back}}};"
    source = np.random.default_rng(3).integers(0, 256, 32 * width, dtype=np.uint8)
    out = np.zeros(32 * width, np.uint8)
    run(kernel(body, 2), {"in": source, "out": out})
    assert (out.reshape(32, count, size) == source.reshape(32, count, size)[:, ::-1]).all()


# Registers for an element of each size; a narrow element is extended.
HELD = {1: "%rs", 2: "%rs", 4: "%r1", 8: "%rd1"}
KINDS = [f"{kind}{width}" for width in (8, 16, 32, 64) for kind in "bus"] + ["f32", "f64"]


@pytest.mark.sweep
@pytest.mark.covers("ld.", "st.")
@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("volatile", ["", ".volatile"])
def test_every_type_and_vector_through_every_space(space: str, kind: str, volatile: str) -> None:
    """Each vector is rotated by one element when stored, and reversed when loaded."""
    size = int(kind[1:]) // 8
    for count in (1, 2, 4, 8):
        width = size * count
        if width > 32 or (width > 16 and (space != "global" or volatile)):
            continue
        names = [f"v{i}" if kind == "b8" else f"{HELD[size]}{i}" for i in range(count)]
        vector, spelled = (f".v{count}", "{%s}") if count > 1 else ("", "%s")
        there, turned, back = (spelled % ", ".join(order) for order in (names, names[1:] + names[:1], names[::-1]))
        body = (
            THREAD
            + f""" ld.param.u64 %rd2, [p2]; mad.wide.u32 %rd3, %r0, {width}, %rd0;
 mad.wide.u32 %rd4, %r0, {width}, %rd1; mad.wide.u32 %rd5, %r0, {width}, %rd2; .reg .b8 v<8>;
 .shared .align 16 .b8 s[{32 * width}]; .local .align 16 .b8 l[{width}];
 mov.u32 %r2, s; mad.lo.u32 %r3, %r0, {width}, %r2; mov.u64 %rd6, l;
 ld.global{vector}.{kind} {there}, [%rd3];\n"""
        )
        place = {"global": "%rd5", "shared": "%r3", "local": "%rd6"}[space]
        body += f" st{volatile}.{space}{vector}.{kind} [{place}], {turned};\n"
        body += f" ld{volatile}.{space}{vector}.{kind} {there}, [{place}];\n"
        body += f" st.global{vector}.{kind} [%rd4], {back};"
        source = np.random.default_rng(width).integers(0, 256, 32 * width, dtype=np.uint8)
        out = np.zeros_like(source)
        run(kernel(body, 3), {"in": source, "out": out, "between": np.zeros_like(source)})
        elements = source.reshape(32, count, size)
        assert (out.reshape(32, count, size) == np.roll(elements, -1, axis=1)[:, ::-1]).all(), f"{count} x {kind}"


def test_shared_addresses_wrap_at_32_bits() -> None:
    # The base is "minus eight" of the variable; the sum wraps in the register, and once more in the address.
    body = (
        THREAD
        + """ .shared .align 8 .b8 s[256];
 mov.u32 %r2, s; add.u32 %r3, %r2, -8; sub.u32 %r3, %r3, %r2; shl.b32 %r4, %r0, 3; add.u32 %r5, %r3, %r4;
 add.u32 %r5, %r5, %r2; mov.u32 %r6, 0xFFFFFFF8; add.u32 %r7, %r6, %r4;
 st.shared.u32 [%r5+8], %r0; add.u32 %r8, %r7, %r2; ld.shared.u32 %r9, [%r8+8];
 mov.u32 %r11, 0x80000000; add.u32 %r12, %r11, %r4; add.u32 %r12, %r12, %r2; ld.shared.u32 %r13, [%r12+-2147483648];
 shl.b32 %r10, %r0, 3; cvt.u64.u32 %rd2, %r10; add.u64 %rd3, %rd0, %rd2;
 st.global.u32 [%rd3], %r9; st.global.u32 [%rd3+4], %r13;"""
    )
    out = np.zeros((32, 2), np.uint32)
    run(kernel(body, 2), {"out": out, "unused": np.zeros(1, np.uint32)})
    assert (out == np.arange(32)[:, None]).all()


def test_shared_memory_is_not_at_address_zero() -> None:
    body = THREAD + " .shared .align 4 .b8 s[64]; mov.u32 %r2, 0; st.shared.u32 [%r2], %r0;"
    with pytest.raises(Fault, match="of shared memory"):
        run(kernel(body, 2), {"a": np.zeros(1, np.uint32), "b": np.zeros(1, np.uint32)}, block=1)


def test_blocks_have_their_own_shared_and_threads_their_own_local_memory() -> None:
    body = (
        THREAD
        + """ .shared .align 4 .b8 s[128]; .local .align 4 .b8 l[8];
 shl.b32 %r2, %r0, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; mad.lo.u32 %r4, %r1, 32, %r0;
 st.shared.u32 [%r3], %r4; mov.u64 %rd2, l; st.local.u32 [%rd2+4], %r4; bar.sync 0;
 ld.shared.u32 %r5, [%r3]; ld.local.u32 %r6, [%rd2+4]; add.u32 %r5, %r5, %r6;
 mad.wide.u32 %rd3, %r4, 4, %rd0; st.global.u32 [%rd3], %r5;"""
    )
    out = np.zeros(32 * 5, np.uint32)
    run(kernel(body, 2), {"out": out, "unused": np.zeros(1, np.uint32)}, grid=5, lanes=64)
    assert (out == 2 * np.arange(160)).all()


def test_local_memory_is_bounded() -> None:
    body = THREAD + " .local .align 4 .b8 l[8]; mov.u64 %rd2, l; st.local.u32 [%rd2+8], %r0;"
    with pytest.raises(Fault, match="byte 8 of local memory, which has 8 bytes"):
        run(kernel(body, 2), {"a": np.zeros(1, np.uint32), "b": np.zeros(1, np.uint32)})


def test_shared_variables_do_not_overlap() -> None:
    body = (
        THREAD
        + """ .shared .align 2 .b8 a[6]; .shared .align 8 .b8 b[8];
 mov.u32 %r2, a; mov.u32 %r3, b; mov.u32 %r4, dynamic; and.b32 %r5, %r3, 7; sub.u32 %r6, %r3, %r2; sub.u32 %r7, %r4,
 %r3;
 st.global.u32 [%rd0], %r5; st.global.u32 [%rd0+4], %r6; st.global.u32 [%rd0+8], %r7;"""
    )
    out = np.zeros(3, np.uint32)
    declaration = ".extern .shared .align 16 .b8 dynamic[];"
    run(
        kernel(body, 2, declarations=declaration), {"out": out, "b": np.zeros(1, np.uint32)}, block=1, dynamic_shared=32
    )
    assert out[0] == 0 and out[1] >= 6 and out[2] >= 8


# ---- parameters, constants, modules ---------------------------------------------------------------------------------

PARAMETERS = """
struct Pair { int a; double b; };
__constant__ unsigned table[6] = {1, 0, 3};
__device__ unsigned counter = 40;
extern "C" __global__ void k(double* out, Pair pair, unsigned char c, float f, long long l, int n) {
  out[0] = pair.a; out[1] = pair.b; out[2] = c; out[3] = f; out[4] = l; out[5] = n; out[6] = table[2] + table[5];
  out[7] = ++counter;
}
"""


@pytest.mark.covers("ld.param.", "ld.const.", "ld.global.")
@pytest.mark.parametrize("arch", ARCHES)
def test_parameters_and_variables(arch: str) -> None:
    program = Module(ptx(PARAMETERS, arch))
    pair = (-3).to_bytes(4, "little", signed=True) + bytes(4) + np.float64(2.5).tobytes()
    out = np.zeros(8)
    args = [buffer("out", out), pair, 200, 1.5, -(1 << 40), -7]
    launch(program, "k", (1, 1, 1), (1, 1, 1), args)
    assert out.tolist() == [-3, 2.5, 200, 1.5, -(1 << 40), -7, 3, 41]
    launch(program, "k", (1, 1, 1), (1, 1, 1), args)
    assert out[7] == 42, "a __device__ variable lives as long as its module"
    assert program.constant("table") == np.array([1, 0, 3, 0, 0, 0], np.uint32).tobytes()
    assert program.constant("counter") == (40).to_bytes(4, "little"), "the initialiser, not the present value"
    assert program.target == arch


@pytest.mark.covers("ld.param.")
@pytest.mark.parametrize("arch", ARCHES)
def test_parameter_indexed_at_run_time(arch: str) -> None:
    source = """
struct Table { int entries[16]; };
extern "C" __global__ void k(int* out, const __grid_constant__ Table table) {
  out[threadIdx.x] = table.entries[threadIdx.x ^ 5];
}"""
    out, table = np.zeros(16, np.int32), np.arange(16, dtype=np.int32) * 3
    launch(module(source, arch), "k", (1, 1, 1), (16, 1, 1), [buffer("out", out), table.tobytes()])
    assert (out == table[np.arange(16) ^ 5]).all()
    with pytest.raises(Fault, match='of buffer "the kernel\'s parameters"'):
        launch(
            module(source, arch), "k", (1, 1, 1), (32, 1, 1), [buffer("out", np.zeros(32, np.int32)), table.tobytes()]
        )


@pytest.mark.covers("ld.param.", "ld.const.")
@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("letter", ["b", "u", "s"])
def test_parameters_and_constants_by_every_type(letter: str, width: int) -> None:
    """Versions of NVRTC name one load by different types."""
    register = {8: "%rs1", 16: "%rs1", 32: "%r1", 64: "%rd1"}[width]
    body = f""" ld.param.u64 %rd0, [p0]; ld.param.{letter}{width} {register}, [p1];
 st.global.b{width} [%rd0], {register}; ld.const.{letter}{width} {register}, [c];
 st.global.b{width} [%rd0+8], {register};"""
    text = kernel(body, 2, declarations=".const .align 8 .b8 c[8] = {254, 220, 186, 152, 118, 84, 50, 16};")
    out, value = np.zeros(2, np.uint64), 0x1032547698BADCFE
    launch(Module(text), "k", (1, 1, 1), (1, 1, 1), [buffer("out", out), value])
    assert out.tolist() == [value & (1 << width) - 1] * 2


def test_launches_that_cuda_would_refuse() -> None:
    source = """
extern "C" __global__ void __launch_bounds__(64) k(int* x, unsigned char c) {
  __shared__ int s[8];
  s[c] = 1;
  x[c] = s[0];
}"""
    x = buffer("x", np.zeros(1, np.int32))

    def refused(match: str, *args, block=(32, 1, 1), grid=(1, 1, 1), **options) -> None:
        with pytest.raises(LaunchError, match=match):
            launch(module(source), options.pop("kernel", "k"), grid, block, args, **options)

    refused("1 arguments for 2 parameters", x)
    refused("argument 1 is 256, and the parameter has 1 bytes", x, 256)
    refused("argument 1 is b'ab'", x, b"ab")
    refused("a block of", x, 1, block=(65, 1, 1))
    refused("a grid of", x, 1, grid=(1, 65536, 1))
    refused("bytes of shared memory", x, 1, dynamic_shared=227 << 10)
    refused("no kernel 'j'", x, 1, kernel="j")
    with pytest.raises(LaunchError, match="no variable 'launch'; it has none"):
        module(source).constant("launch")


def test_pointers_in_memory_reach_buffers_of_the_launch() -> None:
    source = 'extern "C" __global__ void k(unsigned* const* table) { table[threadIdx.x][1] = threadIdx.x + 5; }'
    arrays = [np.zeros(2, np.uint32) for _ in range(3)]
    buffers = [buffer(f"b{i}", array) for i, array in enumerate(arrays)]
    table = buffer("table", np.array([b.address for b in buffers], np.uint64))
    launch(module(source), "k", (1, 1, 1), (3, 1, 1), [table], memory=buffers)
    assert [array[1] for array in arrays] == [5, 6, 7]
    with pytest.raises(Fault, match="lies in no buffer"):
        launch(module(source), "k", (1, 1, 1), (3, 1, 1), [table], memory=buffers[:2])


def test_buffers_are_aligned_and_far_apart() -> None:
    a, b = buffer("a", np.zeros(3, np.uint8)), buffer("b", np.zeros(3, np.uint8))
    assert a.address % 256 == 0 and b.address % 256 == 0 and abs(a.address - b.address) >= 1 << 34
    with pytest.raises(ValueError, match="contiguous uint8"):
        Buffer("c", np.zeros(4, np.uint32))


# ---- atomics --------------------------------------------------------------------------------------------------------

ATOMIC_MODELS = {
    "add.u32": lambda old, v: old + v,
    "add.s32": lambda old, v: old + v,
    "add.u64": lambda old, v: old + v,
    "add.s64": lambda old, v: old + v,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda old, v: min(old, v, key=lambda x: x - (x >> 31 << 32)),
    "max.s32": lambda old, v: max(old, v, key=lambda x: x - (x >> 31 << 32)),
    "min.u64": min,
    "max.u64": max,
    "min.s64": lambda old, v: min(old, v, key=lambda x: x - (x >> 63 << 64)),
    "max.s64": lambda old, v: max(old, v, key=lambda x: x - (x >> 63 << 64)),
    "and.b32": lambda old, v: old & v,
    "or.b32": lambda old, v: old | v,
    "xor.b32": lambda old, v: old ^ v,
    "and.b64": lambda old, v: old & v,
    "or.b64": lambda old, v: old | v,
    "xor.b64": lambda old, v: old ^ v,
    "exch.b32": lambda old, v: v,
    "exch.b64": lambda old, v: v,
    "inc.u32": lambda old, v: 0 if old >= v else old + 1,
    "dec.u32": lambda old, v: v if old == 0 or old > v else old - 1,
}


@pytest.mark.sweep
@pytest.mark.covers("atom.")
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", ATOMIC_MODELS)
@pytest.mark.parametrize("cells", [1, 5, 32])
def test_atomics_run_in_lane_order(name: str, space: str, cells: int) -> None:
    width = int(name.split(".")[1][1:])
    size, register = width // 8, "%rd1" if width == 64 else "%r1"
    rng = np.random.default_rng(cells)
    values = rng.integers(0, 1 << 63, 32, dtype=np.uint64).astype(f"u{size}")
    values[::3] = rng.integers(0, 9, len(values[::3]))
    memory, found = np.arange(cells, dtype=f"u{size}") * 3, np.zeros(32, f"u{size}")
    body = f""" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2];
 .shared .align 8 .b8 s[{cells * size}]; rem.u32 %r2, %r0, {cells}; mad.wide.u32 %rd3, %r2, {size}, %rd0;
 mad.wide.u32 %rd4, %r0, {size}, %rd1; mad.wide.u32 %rd5, %r0, {size}, %rd2; ld.global.u{width} {register}0, [%rd4];
 mov.u64 %rd6, s; mad.wide.u32 %rd7, %r2, {size}, %rd6; setp.lt.u32 %p0, %r0, {cells};
"""
    target = "%rd3"
    if space == "shared":
        body += f" ld.global.u{width} {register}1, [%rd3]; @%p0 st.shared.u{width} [%rd7], {register}1; bar.sync 0;\n"
        target = "%rd7"
    body += f" atom.{space}.{name} {register}2, [{target}], {register}0; st.global.u{width} [%rd5], {register}2;\n"
    if space == "shared":
        body += f" bar.sync 0; ld.shared.u{width} {register}3, [%rd7]; @%p0 st.global.u{width} [%rd3], {register}3;"
    expected, olds = [int(v) for v in memory], []
    for lane in range(32):
        olds.append(expected[lane % cells])
        expected[lane % cells] = ATOMIC_MODELS[name](olds[-1], int(values[lane])) & ((1 << width) - 1)
    run(kernel(body, 3), {"memory": memory, "values": values, "found": found})
    assert found.tolist() == olds and memory.tolist() == expected


@pytest.mark.covers("red.")
@pytest.mark.parametrize("name", [name for name in ATOMIC_MODELS if not name.startswith("exch")])
def test_red_updates_like_atom(name: str) -> None:
    width = int(name.split(".")[1][1:])
    register = "%rd9" if width == 64 else "%r9"
    body = f" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; cvt.u{width}.u32 {register}, %r0;"
    body += f" red.global.{name} [%rd0], {register};"
    memory = np.array([6], f"u{width // 8}")
    run(kernel(body, 1), {"memory": memory})
    expected = 6
    for lane in range(32):
        expected = ATOMIC_MODELS[name](expected, lane) & ((1 << width) - 1)
    assert memory[0] == expected


@pytest.mark.covers("atom.", "red.", "ld.acquire.")
@pytest.mark.parametrize(("atom", "red"), [("acq_rel", "release"), ("acquire", "relaxed"), ("release", "release")])
def test_an_order_changes_no_value(atom: str, red: str) -> None:
    body = f""" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd2, %r0, 4, %rd1;
 atom.{atom}.gpu.global.inc.u32 %r1, [%rd0], 20; red.{red}.gpu.global.add.u32 [%rd0+4], %r0; bar.warp.sync -1;
 ld.acquire.gpu.global.u32 %r2, [%rd0+4]; add.u32 %r3, %r1, %r2; st.global.u32 [%rd2], %r3;"""
    counts, found = np.zeros(2, np.uint32), np.zeros(32, np.uint32)
    run(kernel(body, 2), {"counts": counts, "found": found})
    assert counts.tolist() == [32 % 21, sum(range(32))]
    assert found.tolist() == [lane % 21 + sum(range(32)) for lane in range(32)]


@pytest.mark.covers("atom.")
@pytest.mark.parametrize("width", [16, 32, 64])
def test_compare_and_swap(width: int) -> None:
    register = {16: "%rs", 32: "%r1", 64: "%rd1"}[width]
    body = f""" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; add.u32 %r1, %r0, 1;
 cvt.u{width}.u32 {register}0, %r0; cvt.u{width}.u32 {register}1, %r1;
 atom.global.cas.b{width} {register}2, [%rd0], {register}0, {register}1;
 mad.wide.u32 %rd3, %r0, {width // 8}, %rd1; st.global.u{width} [%rd3], {register}2;"""
    memory, found = np.zeros(1, f"u{width // 8}"), np.zeros(32, f"u{width // 8}")
    run(kernel(body, 2), {"memory": memory, "found": found})
    assert memory[0] == 32 and found.tolist() == list(range(32)), "each lane finds what the lane before it stored"


@pytest.mark.covers("atom.")
def test_float_atomics_add_in_lane_order_with_one_rounding_each() -> None:
    values = np.random.default_rng(1).standard_normal(64).astype(np.float32) * np.float32(1e3)
    memory = np.zeros(1, np.float32)
    body = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd2, %r0, 4, %rd1;
 ld.global.f32 %f0, [%rd2]; atom.global.add.f32 %f1, [%rd0], %f0;"""
    run(kernel(body, 2), {"memory": memory, "values": values}, block=64)
    total = np.float32(0)
    for value in values:
        total += value
    assert memory[0].tobytes() == total.tobytes()


@pytest.mark.covers("atom.")
def test_float_atomics_flush_subnormals_in_global_memory_only() -> None:
    body = """ ld.param.u64 %rd0, [p0]; mov.f32 %f0, 0f00000001; atom.global.add.f32 %f1, [%rd0], %f0;
 .shared .align 4 .b8 s[4]; mov.f32 %f2, 0f00000003; st.shared.f32 [s], %f2; atom.shared.add.f32 %f3, [s], %f0;
 ld.shared.f32 %f4, [s]; st.global.f32 [%rd0+4], %f4;"""
    memory = np.array([5, 0], np.uint32)
    run(kernel(body, 1), {"memory": memory}, block=1)
    assert memory.tolist() == [0, 4]


@pytest.mark.covers("atom.", "red.")
@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
def test_sixteen_bit_atomics_keep_subnormals(kind: str) -> None:
    size = 4 if kind.endswith("x2") else 2
    register = "%r3" if size == 4 else "%rs3"
    pattern = 0x00030001 if size == 4 else 1
    body = f" ld.param.u64 %rd0, [p0]; mov.b{8 * size} {register}, {pattern};"
    body += (
        f" red.global.add.noftz.{kind} [%rd0], {register}; atom.global.add.noftz.{kind} {register}, [%rd0], {register};"
    )
    body += f" st.global.b{8 * size} [%rd0+{size}], {register};"
    memory = np.array([pattern * 2, 0], f"u{size}")
    run(kernel(body, 1), {"memory": memory}, block=1)
    assert memory.tolist() == [pattern * 4, pattern * 3]


VECTORS = ["add.v2.f32", "add.v4.f32"]
for _kind in ("f16", "bf16", "f16x2", "bf16x2"):
    _counts = (2, 4) if _kind.endswith("x2") else (2, 4, 8)
    VECTORS += [f"{name}.noftz.v{count}.{_kind}" for name in ("add", "min", "max") for count in _counts]


@pytest.mark.sweep
@pytest.mark.covers("atom.", "red.")
@pytest.mark.parametrize("name", VECTORS)
def test_each_element_of_a_vector_is_updated_in_lane_order(name: str) -> None:
    """32 lanes update three vectors by `atom`, and again by `red`."""
    operation, *_, vector, kind = name.split(".")
    count, bits = int(vector[1:]), 16 if kind in ("f16", "bf16") else 32
    scalar = expected(f"{operation}{'.ftz' * (kind == 'f32')}.{kind}")[2]
    values, memory = (
        draw(f"{name}{i}", (kind,))[0][: n * count].astype(f"u{bits // 8}") for i, n in enumerate((16, 3))
    )
    values = np.resize(values, 32 * count)
    before, found = memory.copy(), np.zeros_like(values)
    one, two = ("{" + ", ".join(f"{x}{i}" for i in range(count)) + "}" for x in "ab")
    stores = " ".join(f"st.global.b{bits} [%rd5+{i * bits // 8}], b{i};" for i in range(count))
    loads = " ".join(f"ld.global.b{bits} a{i}, [%rd4+{i * bits // 8}];" for i in range(count))
    size = count * bits // 8
    body = f""" .reg .b{bits} a<8>, b<8>; mov.u32 %r0, %tid.x; rem.u32 %r2, %r0, 3;
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mad.wide.u32 %rd3, %r2, {size}, %rd0;
 mad.wide.u32 %rd4, %r0, {size}, %rd1; mad.wide.u32 %rd5, %r0, {size}, %rd2; {loads}
 atom.global.{name} {two}, [%rd3], {one}; {stores} red.relaxed.gpu.global.{name} [%rd3], {one};"""
    run(kernel(body, 3), {"memory": memory, "values": values, "found": found})
    model, olds = before.tolist(), []
    for turn in range(2):
        for at, value in enumerate(values.tolist()):
            cell = at // count % 3 * count + at % count
            olds += [model[cell]] * (not turn)
            model[cell] = scalar(model[cell], value)
    assert found.tolist() == olds and memory.tolist() == model


@pytest.mark.parametrize(
    ("line", "what"),
    [("red.shared.add.v2.f32 [s], {%f1, %f1};", "not emulated"), ("red.add.v8.f32 [%rd0], {%f1, %f1};", "not emulated"),
     ("red.global.add.v4.f32 [%rd0+8], {%f1, %f1, %f1, %f1};", "not a multiple of 16"),
     ("red.global.min.v2.f32 [%rd0], {%f1, %f1};", "not emulated"),
     ("red.global.add.noftz.v4.f16 [%rd0], {%rs1, %rs1};", "not emulated"),
     ("red.global.add.v4.f32 [%rd0+32], {%f1, %f1, %f1, %f1};", "at byte 32 of buffer 'x', which has 32 bytes")],
)  # fmt: skip
def test_vectors_that_cannot_be_updated(line: str, what: str) -> None:
    body = f" .shared .align 16 .b8 s[16]; ld.param.u64 %rd0, [p0]; mov.f32 %f1, 0f3F800000; mov.u16 %rs1, 1; {line}"
    with pytest.raises((Fault, NotEmulated), match=what):
        run(kernel(body, 1), {"x": np.zeros(8, np.float32)}, block=1)


def test_the_order_of_words_that_the_manual_has() -> None:
    body = """ ld.param.u64 %rd0, [p0]; mov.f32 %f1, 0f3F800000; mov.u64 %rd1, 0;
 red.global.v4.f32.add [%rd0], {%f1, %f1, %f1, %f1}; red.global.L2::cache_hint.v2.f32.add [%rd0], {%f1, %f1}, %rd1;"""
    x = np.arange(4, dtype=np.float32)
    run(kernel(body, 1), {"x": x}, block=1)
    assert x.tolist() == [2, 3, 3, 4]


@pytest.mark.covers("atom.", "red.")
def test_float64_atomic() -> None:
    body = " ld.param.u64 %rd0, [p0]; mov.f64 %fd0, 0d3FF8000000000000; red.relaxed.gpu.global.add.f64 [%rd0], %fd0;"
    body += " bar.warp.sync -1; atom.global.add.f64 %fd1, [%rd0], %fd0; mov.u32 %r0, %tid.x;"
    body += " mad.wide.u32 %rd1, %r0, 8, %rd0; st.global.f64 [%rd1+8], %fd1;"
    memory = np.zeros(33)
    memory[0] = 0.25
    run(kernel(body, 1), {"memory": memory}, block=32)
    assert memory.tolist() == [96.25, *(48.25 + 1.5 * lane for lane in range(32))]


@pytest.mark.covers("red.")
def test_red_adds_floats_in_lane_order() -> None:
    body = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd2, %r0, 4, %rd1;
 ld.global.f32 %f0, [%rd2]; red.global.add.f32 [%rd0], %f0;"""
    values = np.array([1.0, 2.0**-24, 2.0**-24, 2.0**-23], np.float32)  # the two lost terms would not be lost together
    memory = np.zeros(1, np.float32)
    run(kernel(body, 2), {"memory": memory, "values": values}, block=4)
    assert memory[0] == np.float32(1 + 2.0**-23)


def test_masked_atomics_and_loads_leave_other_lanes_alone() -> None:
    body = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 1; mov.u32 %r2,
    99; mov.u32 %r3, 98;
 mad.wide.u32 %rd1, %r0, 4, %rd0; @%p0 atom.global.exch.b32 %r2, [%rd1], 7; @!%p0 ld.global.u32 %r3, [%rd1];
 add.u32 %r4, %r2, %r3; st.global.u32 [%rd1], %r4;"""
    memory = np.arange(32, dtype=np.uint32)
    run(kernel(body, 1), {"memory": memory})
    lanes = np.arange(32)
    assert (memory == np.where(lanes % 2, lanes + 98, 99 + lanes)).all()
