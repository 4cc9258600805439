"""Whether the three files of a recipe agree, before anything is compiled.

May import `suite/`, `jit/`, `oracles/` and `verify/`; only `harness check` imports it.
"""
