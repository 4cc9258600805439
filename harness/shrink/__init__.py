"""Reduce a failing case to the smallest part that still fails, and write a test that reproduces it.

May import `contract/`, `suite/`, `device/`, `verify/` and the oracles' inputs; only its command imports it.
"""
