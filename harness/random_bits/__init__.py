"""Test the random bits of stochastic rounding, in our kernels or others: bias in each e2m1 interval, and bits that
repeat. `design` makes the tensors to round, `sample` reads a kernel's results, `significance` has tests with their
power, and `study` runs all tests with one rate of false alarms.
"""
