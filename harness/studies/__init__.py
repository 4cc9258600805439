"""Studies produce evidence: each file or folder is one, with its own command and, mostly, a table in `results/`.

Mutants, peers, quality of recipes, sums of a matrix unit, runs under compute-sanitizer, opcodes, coverage, conversions,
the casts over every pattern, and the emulator against a GPU. A study may import everything but commands, shrink and
other studies; only commands import a study.
"""
