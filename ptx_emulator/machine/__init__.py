"""A batch of blocks while it runs: registers, memory, barriers, scheduling.

Imports what records races and what computes; decoded instructions act on it, and `launches` runs it. The order of all
folders is in tests/test_imports.py.
"""
