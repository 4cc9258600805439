"""Studies make evidence: each file or folder is one, with a command of its own and a table in `results/`.

Mutants, peers, quality of recipes, runs under compute-sanitizer, opcodes, coverage, conversions, the casts over every
pattern, and the emulator against a GPU. A study may import everything; only commands import a study.
"""
