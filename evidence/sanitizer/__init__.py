"""The suites under NVIDIA's compute-sanitizer, which patches machine code on a GPU.

Each tool runs the cases in one process per shard (`run`), because it prints its summary when a process ends. Only our
kernels are patched, not those of torch, CuPy or a library, so initcheck takes poisoned outputs for uninitialized. Two
tools skip the cases that call a library. The pytest plugin (`plugin`) allocates every array at its exact
size, without guard bands or a pool, so that memcheck sees the first byte beyond. Before the cases, each tool must find
a planted error (`planted`). Only `commands/sanitize` imports this folder.
"""
