"""Compare the model with a matrix unit, kind by kind, and keep the smallest sum that it gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from evidence.matrix_sums.draws import COLS, KINDS, K, Tiles
from evidence.matrix_sums.model import FRACTION_BITS, fused_sum
from harness.device.cuda import CudaDevice
from harness.device.cuda_code import load
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable
from harness.jit.compile import compile_kernel, ptx_of
from harness.jit.signature import read_signatures
from harness.report.tables import markdown, write_table
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

ROWS = {"mma": 16, "wgmma": 64}  # of a tile
THREADS = {"mma": 32, "wgmma": 128}
TARGET = "sm_90a"

Unit = Callable[[str, Tiles], np.ndarray]


def unit_of(device: Device) -> Unit:
    """The function that computes an instruction's sums on a device, as float32 patterns (tiles, rows, 8).

    Raises DeviceUnavailable for a GPU that is not Hopper.
    """
    if isinstance(device, EmulatorDevice):
        return _emulated
    if not isinstance(device, CudaDevice) or TARGET not in device.targets:
        raise DeviceUnavailable(f"the model is of Hopper's matrix unit, and {device.identity()['gpu']} is none")
    return _on_gpu


def _kernel(instruction: str, arch: str):
    name = f"{instruction}_products"
    return compile_kernel(read_signatures("products", Path(__file__).parent)[name], {}, arch)


def _on_gpu(instruction: str, tiles: Tiles) -> np.ndarray:
    import cupy

    a, b, c = (cupy.asarray(np.ascontiguousarray(x)) for x in tiles)
    d = cupy.full(c.shape, np.nan, np.float32)
    load(_kernel(instruction, TARGET))((len(a),), (THREADS[instruction],), (a, b, c, d))
    return cupy.asnumpy(d).view(np.uint32)


def _emulated(instruction: str, tiles: Tiles) -> np.ndarray:
    kernel = _kernel(instruction, ptx_of(TARGET))
    inputs = [
        Buffer(name, np.ascontiguousarray(x).view(np.uint8).ravel()) for name, x in zip("abc", tiles, strict=True)
    ]
    count, rows = tiles[0].shape[:2]
    out = Buffer("d", np.zeros(4 * count * rows * COLS, np.uint8), initialised=False)
    launch(Module(kernel.ptx), kernel.symbol, (count, 1, 1), (THREADS[instruction], 1, 1), [*inputs, out])
    return out.data.view(np.uint32).reshape(count, rows, COLS)


CHUNK = 1 << 18  # sums at a time


@dataclass(frozen=True)
class Compared:
    """One instruction on one kind of products.

    sums: how many; differing: from the model; first: one of these, as small as it gets
    """

    instruction: str
    products: str
    sums: int
    differing: int
    first: str


def compare(unit: Unit, sums: int, seed: int) -> Iterator[Compared]:
    """Every instruction on every kind. sums: of each, at least"""
    for instruction, rows in ROWS.items():
        for number, (kind, draw) in enumerate(KINDS.items()):
            rng = np.random.default_rng([seed, rows, number])
            done, differing, first = 0, 0, ""
            while done < sums:
                tiles = draw(rng, -(-min(sums - done, CHUNK) // (rows * COLS)), rows)
                found, right = unit(instruction, tiles), modelled(tiles)
                wrong = np.argwhere(found != right)
                if len(wrong) and not first:
                    first = smallest(partial(unit, instruction), modelled, tiles, tuple(wrong[0]))
                done, differing = done + found.size, differing + len(wrong)
            yield Compared(instruction, kind, done, differing, first)


def modelled(tiles: Tiles, fraction_bits: int = FRACTION_BITS) -> np.ndarray:
    """The model's sums, patterns of float32 (tiles, rows, 8)."""
    a, b, c = tiles
    shape = (*c.shape, K)
    left = np.broadcast_to(a[:, :, None, :], shape).reshape(-1, K)
    right = np.broadcast_to(b[:, None, :, :], shape).reshape(-1, K)
    return fused_sum(left, right, c.reshape(-1), fraction_bits).reshape(c.shape)


def write(command: str, device: str, compared: Sequence[Compared], folder: Path) -> list[Path]:
    text = [
        "# Sums of the matrix unit",
        f"`{command}` on {device}",
        "One instruction for each sum of sixteen products of f16 and a float32, against the model of MMA-Sim (arXiv "
        "2511.10909): terms aligned to the largest and cut off behind 25 bits, their sum cut off to float32.",
        markdown(pd.DataFrame([asdict(one) for one in compared])),
    ]
    return write_table(folder, "matrix_sums", pd.DataFrame([asdict(one) for one in compared]), text)


Way = Callable[[Tiles], np.ndarray]


def smallest(unit: Way, model: Way, tiles: Tiles, at: tuple[int, int, int]) -> str:
    """The sum at (tile, row, column) reduced to the terms that matter, with both results, as one line.

    unit, model: from tiles to patterns of float32 (tiles, rows, 8), which differ there
    """
    now = _alone(tiles, at)
    while True:
        smaller = list(_without_a_term(now))
        if not smaller:
            break
        many = tuple(np.concatenate(parts) for parts in zip(*smaller, strict=True))
        differing = np.flatnonzero((unit(many) != model(many))[:, 0, 0])
        if not len(differing):
            break
        now = smaller[int(differing[0])]
    found, right = unit(now)[0, 0, 0], model(now)[0, 0, 0]
    return f"{_spelled(now)} is {found:#010x}, and the model has {right:#010x}"


def _alone(tiles: Tiles, at: tuple[int, int, int]) -> Tiles:
    """One tile with this sum as its first and zeros for all other sums."""
    tile, row, column = at
    a, b, c = (np.zeros_like(x[:1]) for x in tiles)
    a[0, 0], b[0, 0], c[0, 0, 0] = tiles[0][tile, row], tiles[1][tile, column], tiles[2][tile, row, column]
    return a, b, c


def _without_a_term(tiles: Tiles) -> Iterator[Tiles]:
    a, b, c = tiles
    for k in np.flatnonzero((a[0, 0] != 0) | (b[0, 0] != 0)):
        fewer = a.copy(), b.copy(), c
        fewer[0][0, 0, k] = fewer[1][0, 0, k] = 0
        yield fewer
    if c[0, 0, 0] != 0:
        yield a, b, np.zeros_like(c)


def _spelled(tiles: Tiles) -> str:
    """Factors and accumulator in hexadecimal floats, so that nothing is rounded."""
    a, b, c = tiles
    products = [f"{_hex(x)} * {_hex(y)}" for x, y in zip(a[0, 0], b[0, 0], strict=True) if x != 0 or y != 0]
    return " + ".join([_hex(c[0, 0, 0]), *products])


def _hex(x: np.floating) -> str:
    digits, _, power = float(x).hex().partition("p")
    return f"{digits.rstrip('0').rstrip('.')}p{power}" if power else digits
