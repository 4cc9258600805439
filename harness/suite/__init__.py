"""From `suites/S.yaml` to cases, and from a case to what it draws and launches.

The folder has the schema of suites and its checks, covers, shapes, stages of pipelines, operands of products, launches
in order, and the bytes that a case moves with the least time that takes. May import `contract/`, `inputs/`, `oracles/`
and `jit/`.
"""
