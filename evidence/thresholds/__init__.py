"""Find the comparisons in kernels and oracles of which the smoke sets only see one side.

Every `setp`, `min` and `max` with a constant or a kernel parameter, and every comparison of numbers in an oracle, is
watched while the cases run: was the value ever below, equal to, and above the other operand?
"""
