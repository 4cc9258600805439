"""A batch of blocks while it runs: registers, memory, barriers, scheduling.

Imports everything beside it but `instructions`, `decode` and `launch`.
"""
