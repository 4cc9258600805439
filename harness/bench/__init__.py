"""How long a case takes: the timer, clocks, copies that keep memory cold, timing rounds and their statistics.

A time is compared with the copy roofline of the same run, the baseline recipe timed in the same rounds, and the targets
of `targets.yaml`. May import `contract/`, `inputs/`, `suite/`, `jit/`, `device/`, `verify/` and `records/`, not
`gate/`, `report/` or pytest.
"""
