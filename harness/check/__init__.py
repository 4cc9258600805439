"""Whether the three files of a recipe agree and keep the rules, and how many cases each device compares, before anything is compiled.

May import `suite/`, `jit/`, `oracles/` and `expected/`; `harness check` and a run import it.
"""
