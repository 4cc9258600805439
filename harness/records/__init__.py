"""A run's files on disk, written, read and checked: its journal, the records in it, and their folder.

May import `contract/`, `inputs/`, `jit/`, `suite/`, `device/`, `verify/` and `harness.verdict`.
"""
