"""How long a case takes: the timer, clocks, copies that keep memory cold, timing rounds and their statistics.

A time is compared with the copy roofline of the same run, the baseline recipe timed in turns with the case, and the
figures of `targets.yaml`. May import the contract, `suite/`, `jit/`, `device/`, `verify/` and the records of `runner/`,
not `gate/`, `report/` or pytest.
"""
