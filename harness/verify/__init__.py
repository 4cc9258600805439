"""One case on one device: run it on poisoned outputs, compare every byte, give a verdict.

All comparisons of outputs with the oracles' answers are here. Imports `expected/`, devices and the contract; never a
bench, a subject or a report.
"""
