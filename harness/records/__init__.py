"""What a run leaves on disk: its journal, the records in it, and the folder they lie in, written, read and checked.

May import `harness.errors`, `harness.files`, `harness.verdict` and NVRTC's version from `jit/`.
"""
