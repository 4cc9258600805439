"""A CPU emulator for PTX that is also a sanitizer and a counter. It knows nothing of NVFP4, suites or the harness.

    import ptx_emulator as ptx

    module = ptx.Module(text)                              # PTX, as nvcc, NVRTC or Triton make it
    x, y = ptx.Buffer("x", bytes_of_x), ptx.Buffer("y", bytes_of_y, initialised=False)
    counters = ptx.launch(module, "kernel", (8, 1, 1), (256, 1, 1), [x, y, 2048])

`__all__` is its face, each name imported when it is first asked for: `Module`, `Buffer` and `TensorMap` are what a
kernel works on, `launch` runs one, a `Stream` several in order, in the order of CTAs and warps of a `Schedule`.
`triton_on` runs Triton's kernels. A `Fault` is what a kernel does wrong, `LaunchError` a launch that CUDA would refuse
or a trap, `NotEmulated` what is missing here. `docs/emulator.md` shows it in use,
`docs/emulator_checks.md` has every check.

`launch` parses a module (`ptx`), decodes a kernel once (`decode`, `instructions`) into steps on registers, keeps them
on disk (`stored`), and runs them (`machine`), a batch of blocks at a time. Every instruction has a NumPy step, which
defines it and names its faults: a register is an array with one value for each thread of the batch, or one that they
share, and `arithmetic` computes on them, rounding once as hardware does. Many instructions also have a compiled form
(`compiled`), run by an interpreter that Numba compiles. It stops before whatever is not plainly fine, and the NumPy
step does that. `races` has the shadow memory, which both share, and `catalogue` lists every mnemonic. The package
imports NumPy, and Numba when a kernel first runs; `private_files` are what it keeps on disk.

A `Schedule` is the order of blocks and of warps. In a drawn one, some blocks, warps and lanes also run ahead of others
between barriers. A kernel whose bytes differ between schedules depends on what CUDA leaves open. `process_order` gives
all launches of a process one order in place of their own.

It checks (kinds of Fault): `out_of_bounds` and `misaligned` for every access; `unwritten_read` for shared memory and
for buffers that are not `initialised`; `race`, in shared and global memory, between threads that no barrier orders
(which a barrier of some warps does for these alone), lanes without `__syncwarp`, blocks without fences and an atomic,
with `ld.global.nc` of what the launch writes, and around `wgmma`, whose registers may not be used before
`wgmma.wait_group` nor without `wgmma.fence`, and which reads shared memory asynchronously and needs
`fence.proxy.async`; a `race` with an asynchronous copy in flight, which is an agent of its own (`races.async_shadow`,
`races.async_global`), with a `tcgen05` in flight, which may use shared and tensor memory, and registers, until its
commit or its wait is waited for (`races.tensor_shadow`), or with a launch that may not have ended (`stream`);
`cluster_launch` for a request for another cluster, or an answer to one, that PTX leaves undefined;
`mbarrier` for one that is not initialised, whose bytes or arrivals do not add up, or that is written over;
`tensor_memory` for columns that are never freed, freed twice or asked for too late, for descriptors that the manual
does not have, and for what two blocks do not do alike (`machine.tensor_pairs`); `divergent_barrier` and
`inactive_shuffle` for lanes that wait for lanes that never arrive, barriers that a block does not have, wrong masks,
and `mma`, `ldmatrix` or `wgmma` without all lanes; `deadlock` for no end within the budget, or a wait for a phase that
never comes.

What PTX forbids and GPUs bear is one list, `races.borne`; `launch` reports it if it is `strict`.

A batch whose lanes only poll is suspended, and others run (`machine.residents`), as many blocks at once as the largest
GPU of the target holds by threads, shared memory and places; a grid that waits for more is a `deadlock`.

It does not model time or caches. Races are those of the orders that were run; a shuffle orders its warp's memory. The
payload of a float64 NaN is lost. The sum of an `mma` or `wgmma` of f16 with depth 16 is Hopper's for sm_90 targets
(`arithmetic.hopper_product`); any other, `tcgen05.mma` with and without scales among them, is exact and rounded once,
whatever the hardware's order. Local memory may be read before it is written; a register that nobody wrote holds other
bits in each order, which shows if bytes depend on it, and so do the last bits of approximate instructions
(`approximate`), which `Counters.approximated` names, unless a table has those of the target's chip. NotEmulated is
raised where a kernel reaches `mma` or `wgmma` of other than 16-bit floats, im2col TMA, interleaved TMA with steps,
recursion, or CUDA's functions other than `vprintf` and `__assertfail`; and `tcgen05` that is sparse, of kinds other
than f16, tf32, f8f6f4 (of 8 bits), mxf4 and mxf4nvf4, with an accumulator of f16, with A kept from an instruction
before, of two blocks with 128 rows that have scales or come from tensor memory, or `shift`.

Asynchronous copies are done when they are issued; a thread may see that once it knows that they are complete, which an
mbarrier's phase or its own `wait_group` tells it. In kernels that have them (or mbarriers, or clusters) each thread has
a vector clock (`races.async_order`), and memory is left to NumPy, which takes a hundred times as long.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptx_emulator.errors import Fault as Fault
    from ptx_emulator.errors import LaunchError as LaunchError
    from ptx_emulator.errors import NotEmulated as NotEmulated
    from ptx_emulator.launches import Module as Module
    from ptx_emulator.launches import launch as launch
    from ptx_emulator.memory import Buffer as Buffer
    from ptx_emulator.schedule import Schedule as Schedule
    from ptx_emulator.stream import Stream as Stream
    from ptx_emulator.tensor_map import TensorMap as TensorMap
    from ptx_emulator.triton_driver.context import triton_on as triton_on

_WHERE = {
    **dict.fromkeys(("Fault", "LaunchError", "NotEmulated"), "errors"),
    **dict.fromkeys(("Module", "launch"), "launches"),
    "Buffer": "memory",
    "Schedule": "schedule",
    "Stream": "stream",
    "TensorMap": "tensor_map",
    "triton_on": "triton_driver.context",
}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - the names above


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'ptx_emulator' has no attribute '{name}'; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"ptx_emulator.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
