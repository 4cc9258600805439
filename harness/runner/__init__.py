"""A suite run under pytest: which cases, in which processes, timed by pytest-benchmark, with a summary and exit code.

pytest's hooks for it are in `harness.plugin`. May import every folder but `studies/`, `shrink/` and `commands/`.
"""
