"""Triton without a GPU: its own compiler makes PTX, and the emulator runs it on CPU tensors with all its checks.

    from ptx_emulator import triton_on

    with triton_on("sm_100a"):
        kernel[grid](x, out, n, BLOCK=1024)

`context` replaces Triton's driver and CUDA backend while the block lasts. `backend` stops the compiler at PTX. `driver`
answers what Triton asks of a GPU. `launcher` runs a compiled kernel on the emulator; `arguments` turns what it was
called with into the bytes of its parameters, and `memory` lends the emulator the tensors' own storages. `unwritten`
follows memory that nobody has written yet, from `torch.empty` on. `autotune` makes an autotuner choose without times,
and `host` answers host code's calls to `torch.cuda`.

May import the emulator, and what lies below it. Triton and torch are imported when a block is entered.
"""
