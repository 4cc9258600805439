"""Bugs that people met in kernels, each rebuilt by us as a minimal pair: the bug, and its mend.

An exhibit is a `.cu` file of `exhibits`, whose first lines say thread, story, check, memory and launches. Code in
`BUG(...)` is only in the bug, code in `MEND(...)` only in the mend. `exhibit` reads them, `run` runs them on the
emulator, `on_gpu` runs one on a GPU, through `driver`, and `under_sanitizer` has compute-sanitizer look at it. `rings`
holds three kernels that are right and tricky, and mutants of their synchronisation, which `ring` reads and runs.
"""
