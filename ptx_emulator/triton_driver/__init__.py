"""Triton without a GPU: its own compiler makes PTX, and the emulator runs it on CPU tensors with all its checks.

    from ptx_emulator import triton_on

    with triton_on("sm_100a"):
        kernel[grid](x, out, n, BLOCK=1024)

`context` replaces Triton's driver and CUDA backend while the block lasts, and makes an autotuner choose without times.
`backend` stops the compiler at PTX. `driver` answers what Triton asks of a GPU, and host code of `torch.cuda`.
`launcher` runs a compiled kernel on the emulator; `arguments` turns what it was called with into the bytes of its
parameters. `memory` lends the emulator the tensors' own storages, and follows what nobody has written yet, from
`torch.empty` on.

May import the emulator, and what lies below it. Triton and torch are imported when a block is entered.
"""
