"""Where kernels run: the CPU emulator or a CUDA device, behind the protocol in `device`.

A device prepares a case once for a target and then runs it any number of times, each time on freshly poisoned outputs.
What launches, loads or allocates lives here; what takes times lives in `bench`, and other implementations in
`subjects`. Imports cases, fields and the compiler, and nothing that verifies or times.
"""
