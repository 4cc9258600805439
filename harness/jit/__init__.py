"""From a `.cu` and a choice of flags to PTX and a cubin: signatures, NVRTC, its cache, and the grid a kernel declares.

Needs no GPU and knows no suite. May import `contract/`, `harness.errors`, `harness.files` and `harness.ground.locks`,
and `private_files` of the emulator, whose cache lies in the same folder.
"""
