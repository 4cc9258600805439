"""A batch of blocks while it runs: registers, memory, barriers, scheduling. Knows no instruction by name."""
