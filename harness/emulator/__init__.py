"""A CPU emulator for NVRTC's PTX that is also a sanitizer and a counter. It knows nothing of NVFP4.

How it works. Text is read (`parse`, `body`) and decoded once (`program`, `emit`, and one module for each family of
instructions) into steps on registers. A register is a NumPy array with one value for each thread of a batch of blocks,
or one value that they share. `machine` runs basic blocks, lowest first, for the lanes that wait there; `batch` and
`locate` do what instructions do to lanes and memory. Every float operation is rounded once, as the hardware does it.

What it checks (Fault, by kind). `out_of_bounds`, `misaligned`: every access, against its buffer.
`unwritten_read`: shared memory, and buffers that are not `initialised`. `race`: threads of a block without a barrier
between, lanes of a warp without `__syncwarp`, blocks without a fence and an atomic. `divergent_barrier`,
`inactive_shuffle`: lanes that wait for lanes that never come, masks that name the wrong ones, and `mma`, `ldmatrix` or
`wgmma` without all lanes of the warp or warpgroup. `deadlock`: no end within the budget. Of `wgmma`, as `race` too: its
registers used before `wgmma.wait_group` or not fenced (`flights`), shared memory overwritten before the wait, or read
without `fence.proxy.async` (`tensor_shadow`).

What it does not model. Time, caches, and the order in which blocks run: batches run in ascending order, so a block that
spins until a later one writes never ends. The order of weak memory: threads of one block that exchange global memory
without a barrier go unseen. A barrier of some of a block's threads counts as ordering all of them, a shuffle as
ordering its warp's memory. The payload of a float64 NaN. Instructions whose bits are not specified (`ex2.approx`,
`tanh.approx`), `mma` and `wgmma` of other than 16-bit floats, or of matrices that do not run along K in shared memory,
TMA, clusters, calls: NotEmulated where they are reached, never a wrong value. The order in which an `mma` adds: its sum
is exact and rounded once (`products`). Local memory may be read before it is written.
"""
