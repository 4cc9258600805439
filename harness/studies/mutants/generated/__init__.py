"""Mutants that nobody chose: one mistake of a kind at a place, over all kernels and oracles, drawn by a seed.

`cuda_text` and `python_text` find the places, `draw` makes mutants of them and draws some, `equivalent` tells which of
them change nothing, and `score` counts the others. May import what `studies/mutants` may, and its catalogue.
"""
