"""Run products on a matrix unit: on a GPU, or on the emulator, which has its own model of Hopper's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from evidence.matrix_sums.draws import COLS, Tiles
from harness.device.cuda import CudaDevice
from harness.device.cuda_code import load
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable
from harness.jit.compile import compile_kernel, ptx_of
from harness.jit.signature import read_signatures
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
