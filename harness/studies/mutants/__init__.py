"""Mutation testing: one-line mistakes in kernels and oracles, and the case of the suites that catches each.

The YAML files are the `catalogue`; `reach` orders the cases, `hunt` runs them on the emulator, `journal` keeps the
results and `table` prints them. May import everything below `studies/`; only `commands/mutants` imports this folder.
"""
