"""Reduce a failing case to the smallest part that still fails, and write a reproducer of it.

May import `contract/`, `suite/`, `inputs/`, `oracles/` and `verify/`; only its command imports it.
"""
