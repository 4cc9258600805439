"""Whether the files of recipes agree and keep the rules, and how many cases each device compares; compiles nothing.

May import `suite/`, `jit/`, `oracles/` and `expected/`; `harness check` and a run import it.
"""
