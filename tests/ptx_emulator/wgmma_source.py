"""CUDA C++ around `wgmma`, and the layouts of its operands by the manual's formulas, one element at a time."""

from __future__ import annotations

import numpy as np

# The mode of a descriptor → bytes of a row of its swizzling pattern.
PITCH = {0: 16, 1: 128, 2: 64, 3: 32}


def device_functions(
    columns: int, kind: str = "bf16", immediates: str = "1, 1", across: tuple[int, int] = (0, 0)
) -> str:
    """`multiply(d, a, b, scale_d)`, a being registers or a descriptor, and the instructions around it.

    across: whether A and B are transposed, 0 or 1
    """
    d = ", ".join(f"%{i}" for i in range(columns // 2))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(columns // 2))
    n = columns // 2
    forms = []
    for a, parameter, inputs, transposes in (
        (
            f"{{%{n}, %{n + 1}, %{n + 2}, %{n + 3}}}",
            "const u32 (&a)[4]",
            '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])',
            str(across[1]),
        ),
        (f"%{n}", "u64 a", '"l"(a)', f"{across[0]}, {across[1]}"),
    ):
        b = n + inputs.count("(a")
        # One line, because versions of NVRTC differ in which line of a longer statement they name.
        forms.append(f"""
__device__ void multiply(float (&d)[{n}], {parameter}, u64 b, int scale) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0; wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}\
.{kind} {{{d}}}, {a}, %{b}, p, {immediates}, {transposes}; }}" \
: {outputs} : {inputs}, "l"(b), "r"(scale));  // wgmma {parameter.split()[0]}
}}""")
    return f"""
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
constexpr int kHeld = {n};
#define fence() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define commit() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define wait(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define proxy() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
""" + "".join(forms)


def descriptor(start: int, leading: int, stride: int, mode: int = 0) -> int:
    """The 64 bits; to move the matrix by some bytes, add bytes >> 4."""
    return (start & 0x3FFFF) >> 4 | (leading & 0x3FFFF) >> 4 << 16 | (stride & 0x3FFFF) >> 4 << 32 | mode << 62


def image(matrix: np.ndarray, mode: int, leading: int, stride: int) -> np.ndarray:
    """A (rows, k) uint16 matrix as the bytes of shared memory, from a multiple of 1024 on, that a descriptor finds.

    Swizzled rows are PITCH wide and lie in groups of 8, `stride` apart; core matrices are `leading` apart along K.
    """
    rows, depth = matrix.shape
    out = np.full(1 << 16, 0xFFFF, np.uint16)
    last = 0
    for row in range(rows):
        for k in range(depth):
            if mode:
                byte = row // 8 * stride + row % 8 * PITCH[mode] + k * 2
                byte ^= (byte >> 7) % (PITCH[mode] // 16) << 4
            else:
                byte = row // 8 * stride + k // 8 * leading + row % 8 * 16 + k % 8 * 2
            out[byte // 2] = matrix[row, k]
            last = max(last, byte)
    return out[: -(-(last + 2) // 16) * 8].view(np.uint8)


def image_across(matrix: np.ndarray, mode: int, leading: int, stride: int) -> np.ndarray:
    """The bytes of shared memory like `image`, for a matrix stored transposed: elements with the same k are contiguous.

    Swizzled runs of rows are PITCH wide, in groups of 8 k a `stride` apart, and `leading` from one run to the next;
    core matrices, of 8 k by 8 rows, are `leading` apart along K and `stride` along the rows.
    """
    rows, depth = matrix.shape
    out, last = np.full(1 << 17, 0xFFFF, np.uint16), 0
    for row in range(rows):
        for k in range(depth):
            if mode:
                run, within = divmod(row, PITCH[mode] // 2)
                byte = run * leading + k // 8 * stride + k % 8 * PITCH[mode] + within * 2
                byte ^= (byte >> 7) % (PITCH[mode] // 16) << 4
            else:
                byte = row // 8 * stride + k // 8 * leading + k % 8 * 16 + row % 8 * 2
            out[byte // 2] = matrix[row, k]
            last = max(last, byte)
    return out[: -(-(last + 2) // 16) * 8].view(np.uint8)


def place_of_a(thread: int, i: int) -> tuple[int, int]:
    """Row and column of element i of a thread's four registers of A, (64, 16)."""
    warp, lane = divmod(thread, 32)
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2


def place_of_d(thread: int, i: int) -> tuple[int, int]:
    """Row and column of accumulator i, (64, columns)."""
    warp, lane = divmod(thread, 32)
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2


def to_fragments(matrix: np.ndarray, count: int, place) -> np.ndarray:
    """(128, count), the elements that each thread of a warpgroup holds."""
    return np.array([[matrix[place(thread, i)] for i in range(count)] for thread in range(128)], matrix.dtype)


def from_fragments(held: np.ndarray) -> np.ndarray:
    """(64, columns) of the (128, columns / 2) accumulators of a warpgroup."""
    out = np.zeros((64, held.shape[1] * 2), held.dtype)
    for thread in range(128):
        for i in range(held.shape[1]):
            out[place_of_d(thread, i)] = held[thread, i]
    return out


def encoded(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as patterns of a 16-bit format that holds them exactly."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
