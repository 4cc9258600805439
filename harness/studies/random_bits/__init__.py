"""Random bits of stochastic rounding, of our kernels or anybody's: bias in each interval of e2m1, and bits that repeat.

`design` is the tensors that are rounded, `sample` what a kernel made of them, `bias` and `repeats` are tests with their
power, and `study` is all of them with one rate of false alarms.
"""
