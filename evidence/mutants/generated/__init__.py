"""Random mutants: one mistake of some kind at some place in any kernel or oracle, drawn by a seed.

`cuda_changes` and `python_changes` find the places, `draw` makes mutants from them and draws some, `proofs` reads which
ones are proved to change nothing, and `score` counts the others. `host` and `host_hunt` do the same to host code, which
tests must catch and no case. May import what `evidence/mutants` may, and its
catalogue.
"""
