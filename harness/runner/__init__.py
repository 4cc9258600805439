"""A suite run under pytest: which cases, in which processes, timed by pytest-benchmark, with a summary and exit code.

`harness.plugin` registers its hooks. May import every folder but `shrink/` and `commands/`.
"""
