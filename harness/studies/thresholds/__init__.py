"""Finds the comparisons of kernels and oracles that the smoke sets see on one side only.

Every `setp`, `min` and `max` with a constant or a kernel parameter, and every comparison of numbers in an oracle, is
watched while the cases run: was the value below, equal to and above what it is compared with?
"""
