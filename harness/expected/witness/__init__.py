"""Checks of a case's inputs and expected outputs, by code independent of the code that made them.

The kernel and both oracles read the same inputs, so a mistake in one of these would weaken all three alike. May import
`inputs/promises`, the stages of `suite/`, and no oracle.
"""
