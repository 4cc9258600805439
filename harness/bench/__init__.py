"""How long a case takes: timing rounds, their statistics, and what a time is compared with.

The copy roofline of the same run, the baseline recipe timed in turns with the case, and the figures of `targets.yaml`.
May import the contract, `suite/`, `jit/`, `device/`, `verify/` and the records of `runner/`, not `gate/` or `report/`.
"""
