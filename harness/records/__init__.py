"""What a run leaves on disk: its journal, the records in it, and the folder they lie in, written, read and checked.

May import `contract/`, `inputs/`, `jit/`, `suite/`, `device/`, `verify/` and `harness.verdict`.
"""
