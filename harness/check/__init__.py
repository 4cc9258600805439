"""Whether the three files of a recipe agree, and how many cases each device compares, before anything is compiled.

May import `suite/`, `jit/`, `oracles/` and `verify/`; `harness check` and a run import it.
"""
