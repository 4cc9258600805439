"""Whether the three files of a recipe agree, and how many cases each device compares, before anything is compiled.

May import `suite/`, `jit/`, `oracles/` and `verify/`; `harness check` and a run import it, and
`python -m evidence mutants` its `processes`, so that a process that dies takes nothing else down.
"""
