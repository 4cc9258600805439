"""One case on one device: run it on poisoned outputs, compare every byte, give a verdict.

What compares outputs with the oracles' answers lives here. Imports devices, oracles and the contract; never a bench, a
subject or a report.
"""
