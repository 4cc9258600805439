"""The suites under NVIDIA's compute-sanitizer, which patches machine code on a GPU as the emulator interprets PTX.

Each tool runs the cases in processes of their own, one for each shard, because the tool sums up when a process ends.
Only our kernels are patched: not torch's, not a library's, and not CuPy's, so that to initcheck the poison that fills
outputs and workspaces is no value. Two tools are not shown the cases that call a library (`left_out`). Under `plugin`
every array is an allocation of exactly its size, without guard bands around it and no pool behind it, so that memcheck
sees the first byte beyond. Before the cases, each tool is shown an error (`planted`): one that does not see it proves
nothing.
"""
