"""From `suites/S.yaml` to cases, and from a case to what it draws and launches.

What may stand in a suite and what is wrong with it, covers, shapes, stages of pipelines, operands of products, launches
in order; the bytes it moves and the least time these take. May import `contract/`, `inputs/`, `oracles/` and `jit/`.
"""
