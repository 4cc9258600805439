"""A CPU emulator for NVRTC's PTX that is also a sanitizer and a counter. It knows nothing of NVFP4.

How it works. Text is parsed (`ptx`) and decoded once (`program`, `emit`, and the tables `integer`, `floating`, `convert`, `compare`) into steps on registers; a register is a NumPy
array with one value for each thread of a batch of blocks, or one that they share. `machine` runs basic blocks, lowest first, under masks of lanes.

What it checks (AccessError, by kind). `out_of_bounds`, `misaligned`: every access against its buffer. `unwritten_read`: shared memory and buffers that are not
`initialised`. `race`: threads of a block without a barrier, lanes of a warp without `__syncwarp`, blocks without a fence and an atomic. `divergent_barrier`,
`inactive_shuffle`: lanes that wait for lanes that never come, masks that name the wrong ones. `deadlock`: no end within the budget.

What it does not model. Time, caches and the order in which blocks run: they run in ascending batches, so a block that spins until a later one writes never ends. The order of
weak memory: threads of a block that exchange global memory without a barrier are not seen. A barrier of some of a block's threads counts as ordering all of
them, and a shuffle as ordering memory within its warp. Instructions whose bits NVIDIA does not specify (`ex2.approx`, `tanh.approx`), tensor cores, TMA, clusters and
calls raise NotCapable where they are reached. Local memory may be read before it is written.
"""

from harness.emulator.counters import Counters
from harness.emulator.launch import Module, launch
from harness.emulator.memory import Buffer

__all__ = ["Buffer", "Counters", "Module", "launch"]
