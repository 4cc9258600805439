"""Tensor maps: what the driver refuses, the way there and back, and what a copy refuses of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, module
from exercises import SWIZZLED, swizzle
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import launch
from ptx_emulator.tensor_map import BITS, FLOATS, SWIZZLES, MalformedMap, TensorMap, decode, replaced, swizzled

PLAIN = TensorMap("float16", 4096, (64, 20), (160,), (16, 8), (1, 1))
SLICED = TensorMap("uint16", 4096, (8, 12, 6), (16, 208), (8, 4, 3), (1, 1, 1), interleave="16B")
WIDE = replace(SLICED, extents=(16, 12, 6), strides=(32, 416), box=(16, 4, 3), swizzle="32B", interleave="32B")


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("pattern", SWIZZLES)
def test_there_and_back(kind: str, pattern: str) -> None:
    elements = (32 if pattern == "none" else int(pattern[: pattern.index("B")])) * 8 // BITS[kind]
    given = TensorMap(kind, 4096, (4 * elements, 20), (512,), (elements, 8), (1, 2), pattern, kind in FLOATS)
    assert decode(given.encode()) == given


@pytest.mark.parametrize("pattern", SWIZZLED)
def test_a_swizzle_moves_every_byte_as_the_tables_of_ptx_say(pattern: str) -> None:
    for byte in range(0, 4096, 8):
        assert swizzled(np.array([byte]), pattern)[0] == swizzle(byte, pattern)
    row = [swizzle(128 * 3 + 16 * chunk, pattern) // 16 % 8 for chunk in range(8)]
    by_hand = {
        "32B": [1, 0, 3, 2, 5, 4, 7, 6], "64B": [3, 2, 1, 0, 7, 6, 5, 4], "128B": [3, 2, 1, 0, 7, 6, 5, 4],
        "128B_atom_32B": [6, 7, 4, 5, 2, 3, 0, 1], "128B_atom_32B_flip_8B": [6, 7, 4, 5, 2, 3, 0, 1],
        "128B_atom_64B": [4, 5, 6, 7, 0, 1, 2, 3],
    }  # fmt: skip
    assert row == by_hand[pattern]


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (replace(PLAIN, address=4104), "address 0x1008 is not a multiple of 16"),
        (replace(PLAIN, strides=(168,)), "a stride of 168 bytes, which is not a multiple of 16"),
        (replace(PLAIN, box=(12, 8)), "12 elements of 16 bits, not a multiple of 16 bytes"),
        (replace(PLAIN, box=(32, 8), swizzle="32B"), "rows of 64 bytes, more than the 32 of swizzle 32B"),
        (replace(PLAIN, extents=(128, 20), strides=(256,), box=(128, 8), swizzle="128B_atom_64B"), "more than the 128"),
        (replace(PLAIN, kind="uint16", fills_nan=True), "NaN for what lies outside of a tensor of uint16"),
        (replace(PLAIN, interleave="16B"), "interleave 16B of a tensor of 2 dimensions, where 3 to 5 are allowed"),
        (replace(WIDE, swizzle="none"), "interleave 32B with swizzle none, where it needs swizzle 32B"),
        (replace(WIDE, address=4112), "address 0x1010 is not a multiple of 32"),
        (replace(WIDE, strides=(32, 432)), "a stride of 432 bytes, which is not a multiple of 32"),
    ],
)
def test_what_the_driver_refuses_is_refused(wrong: TensorMap, sentence: str) -> None:
    with pytest.raises(MalformedMap, match=sentence):
        wrong.encode()


def test_slices_with_steps_are_refused_by_name() -> None:
    with pytest.raises(MalformedMap, match="interleave 16B with a step of 2; 1 is emulated"):
        decode(replace(SLICED, steps=(1, 1, 2)).encode())


def test_a_box_of_slices_takes_one_place_of_the_last_dimension_but_one() -> None:
    found = SLICED.units((1, 2, 1))
    assert SLICED.bytes == 16 * 8 * 3
    assert found.outer.tolist() == [208 * (1 + z) + 16 * 2 + 16 * (1 + x) for z in range(3) for x in range(8)]
    assert found.shared.tolist() == list(range(0, 16 * 8 * 3, 16))
    assert found.inside.tolist() == [x < 7 for _ in range(3) for x in range(8)]


def test_a_slice_of_32_bytes_is_two_units() -> None:
    found = WIDE.units((0, 2, 1))
    assert WIDE.bytes == 32 * 16 * 3
    assert found.outer.tolist() == [416 * (1 + z) + 32 * 2 + 16 * half for z in range(3) for half in range(32)]


def test_dimensions_before_the_last_but_one_have_their_extents() -> None:
    given = TensorMap("uint16", 4096, (8, 6, 5, 4), (16, 112, 592), (8, 3, 2, 2), (1,) * 4, interleave="16B")
    found = given.units((0, 1, 1, 1))
    starts = [592 * (1 + v) + 112 + 16 * (1 + y) for v in range(2) for y in range(3)]
    assert found.outer.tolist() == [start + 16 * x for start in starts for x in range(8)]


@pytest.mark.parametrize("pattern, span", [("32B", 32), ("64B", 64), ("128B", 128)])
def test_short_rows_lie_as_far_apart_as_their_swizzle_is_wide(pattern: str, span: int) -> None:
    given = replace(PLAIN, box=(8, 8), swizzle=pattern)
    assert given.bytes == 16 * 8
    assert given.units((0, 0)).shared.tolist() == [span * row for row in range(8)]


@pytest.mark.parametrize("pattern", [pattern for pattern in SWIZZLES if "atom" in pattern])
def test_short_rows_in_larger_atoms_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(MalformedMap, match=f"rows of 32 bytes, less than the 128 of swizzle {pattern}"):
        decode(replace(PLAIN, box=(16, 8), swizzle=pattern).encode())


def test_parts_of_a_swizzle_are_replaced_in_either_order() -> None:
    plain = replace(PLAIN, box=(64, 8)).encode()
    for atom, name in enumerate(("128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")):
        for first, second in ((("swizzle_mode", 3), ("swizzle_atomicity", atom)),) * 2:
            there = replaced(replaced(plain, *_at(first)), *_at(second))
            back = replaced(replaced(plain, *_at(second)), *_at(first))
            assert decode(there).swizzle == decode(back).swizzle == name
    with pytest.raises(MalformedMap, match="swizzle 64B in atoms atom 64B, which 128B alone has"):
        decode(replaced(replaced(plain, "swizzle_mode", 0, 2), "swizzle_atomicity", 0, 3))
    with pytest.raises(MalformedMap, match="swizzle_mode of 4, which is none of none, 32B, 64B, 128B"):
        replaced(plain, "swizzle_mode", 0, 4)


@pytest.mark.covers("tensormap.replace.")
@pytest.mark.parametrize("atom, name", [(0, "128B"), (1, "128B_atom_32B"), (3, "128B_atom_64B")])
def test_a_kernel_replaces_the_atom_of_a_swizzle(atom: int, name: str) -> None:
    words = range(0, 128, 8)
    body = " .shared .align 128 .b8 s[128]; ld.param.u64 %rd1, [p0]; mov.u64 %rd2, s;\n"
    body += "\n".join(f" ld.global.u64 %rd3, [%rd1+{i}]; st.shared.u64 [%rd2+{i}], %rd3;" for i in words)
    body += f"\n tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%rd2], {atom};\n"
    body += "\n".join(f" ld.shared.u64 %rd3, [%rd2+{i}]; st.global.u64 [%rd1+{i}], %rd3;" for i in words)
    content = np.frombuffer(replace(PLAIN, box=(64, 8), swizzle="128B").encode(), np.uint8).copy()
    run(kernel(body, 1), {"map": content}, block=1)
    assert decode(content.tobytes()).swizzle == name


def _at(change: tuple[str, int]) -> tuple[str, int, int]:
    return change[0], 0, change[1]


COPY = (
    PRELUDE
    + r"""
extern "C" __global__ void k(const __grid_constant__ Map map, int x) {
  extern __shared__ __align__(1024) u8 s[]; __shared__ u64 bar;
  if (threadIdx.x) return;
  init(bar, 1); fence(); CALL
}
"""
)
LOAD = "expect(bar, BYTES); load3(s, map, bar, x, 0, 0); wait(bar, 0);"
STORE = "for (int i = 0; i < 256; i++) s[i] = 0; fence(); store2(map, s, x, 0); commit(); wait_all<0>();"


@pytest.mark.parametrize(
    "given, call, x, sentence",
    [
        (replace(SLICED, steps=(1, 1, 2)), LOAD, 0, "interleave 16B with a step of 2"),
        (
            replace(PLAIN, box=(32, 8), swizzle="128B_atom_64B"),
            STORE,
            0,
            "a box with rows of 64 bytes, less than the 128",
        ),
        (
            replace(PLAIN, box=(64, 8), swizzle="128B_atom_32B_flip_8B"),
            STORE,
            0,
            "swizzle 128B_atom_32B_flip_8B is for loads alone",
        ),
    ],
)
def test_what_a_copy_refuses_of_a_map_has_its_line(given: TensorMap, call: str, x: int, sentence: str) -> None:
    source = COPY.replace("CALL", call.replace("BYTES", str(given.bytes)))
    tensor = buffer("tensor", np.zeros(8192, np.uint8))
    arguments = [replace(given, address=tensor.address).encode(), x]
    with pytest.raises(NotEmulated, match=rf"^not emulated: cp.async.bulk.tensor.* at kernel.cu:\d+.*: {sentence}"):
        launch(module(source), "k", (1, 1, 1), (32, 1, 1), arguments, 4096, memory=[tensor])


# As Transformer Engine's grouped casts do: one kernel makes a map for each tensor in shared memory, by generic
# addresses, and stores it as a struct; the next copies with them.
GROUPED = (
    PRELUDE
    + r"""
struct alignas(16) Part { u64 a, b; };
__device__ Map maps[2];
extern "C" __global__ void update(const __grid_constant__ Map base, u8* data, int rows) {
  __shared__ alignas(128) Map mine;
  for (int i = 0; i < 8; i++) ((Part*)&mine)[i] = ((const Part*)&base)[i];
  asm volatile("{ .reg.b64 map; mov.b64 map, %0;\n"
               "tensormap.replace.tile.global_address.b1024.b64 [map], %1;\n"
               "tensormap.replace.tile.global_dim.b1024.b32 [map], 1, %2;\n"
               "tensormap.replace.tile.global_stride.b1024.b64 [map], 0, %3; }"
               :: "l"(&mine), "l"(data + 64 * 8 * blockIdx.x), "r"(rows - (int)blockIdx.x), "l"(64ull) : "memory");
  for (int i = 0; i < 8; i++) ((Part*)&maps[blockIdx.x])[i] = ((Part*)&mine)[i];
}
extern "C" __global__ void cast(u8* out) {
  __shared__ alignas(128) u8 s[512]; __shared__ u64 bar;
  if (!threadIdx.x) {
    init(bar, 1); fence(); ACQUIRE(maps + blockIdx.x);
    expect(bar, 512); load2(s, maps[blockIdx.x], bar, 0, 0);
  }
  __syncthreads();
  wait(bar, 0);
  for (int i = threadIdx.x; i < 512; i += blockDim.x) out[512 * blockIdx.x + i] = s[i];
}
extern "C" __global__ void both(const __grid_constant__ Map base, u8* data, Map* own, u8* out) {
  __shared__ alignas(128) Map mine; __shared__ alignas(128) u8 s[512]; __shared__ u64 bar;
  for (int i = threadIdx.x; i < 8; i += 32) ((Part*)&mine)[i] = ((const Part*)&base)[i];
  __syncwarp();
  if (!threadIdx.x)
    asm volatile("tensormap.replace.tile.global_address.b1024.b64 [%0], %1;" :: "l"(&mine), "l"(data) : "memory");
  __syncwarp();
  for (int i = threadIdx.x; i < 8; i += 32) ((Part*)own)[i] = ((Part*)&mine)[i];
  RELEASE;
  __syncwarp();
  if (!threadIdx.x) {
    init(bar, 1); asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); ACQUIRE(own);
    expect(bar, 512); load2(s, *own, bar, 0, 0);
  }
  __syncwarp();
  wait(bar, 0);
  for (int i = threadIdx.x; i < 512; i += 32) out[i] = s[i];
}
"""
)
BASE = TensorMap("uint8", 0, (64, 8), (64,), (64, 8), (1, 1))


FENCES = r"""
#define ACQUIRE(map) asm volatile("fence.proxy.tensormap::generic.acquire.cta [%0], 128;" :: "l"(map) : "memory")
#define RELEASE asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory")
"""


def test_maps_that_an_earlier_launch_made_in_shared_memory() -> None:
    data, out = np.random.default_rng(1).integers(0, 256, 1024, dtype=np.uint8), np.zeros(1024, np.uint8)
    buffers, found = {"data": buffer("data", data), "out": buffer("out", out)}, module(FENCES + GROUPED)
    base = replace(BASE, address=buffers["data"].address).encode()
    launch(found, "update", (2, 1, 1), (1, 1, 1), [base, buffers["data"], 8])
    launch(found, "cast", (2, 1, 1), (32, 1, 1), [buffers["out"]], memory=[buffers["data"]])
    assert (out == np.where(np.arange(1024) < 512 + 7 * 64, data, 0)).all()


def both(source: str) -> np.ndarray:
    data, out = np.arange(1024).astype(np.uint8), np.zeros(512, np.uint8)
    buffers = [buffer("data", data), buffer("own", np.zeros(128, np.uint8)), buffer("out", out)]
    base = replace(BASE, address=buffers[1].address).encode()
    launch(module(source), "both", (1, 1, 1), (32, 1, 1), [base, *buffers])
    return out


def test_a_map_that_threads_store_in_global_memory_needs_a_fence() -> None:
    assert (both(FENCES + GROUPED) == np.arange(512).astype(np.uint8)).all()
    with pytest.raises(Fault, match="copies with a tensor map .* wrote at .* with no fence.proxy.tensormap between"):
        both("#define ACQUIRE(map)\n#define RELEASE\n" + GROUPED)
