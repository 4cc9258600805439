"""Test vectors for implementations without this package: inputs, and the bytes that both oracles make of them.

`selection` chooses cases, `acceptance` says what else a convention allows, `description` has the words of the index,
and `write` makes the files. `check.py` and `check.cpp` are copied beside them and import nothing of the harness. May
import what stands below it, `subjects` among them; only `commands` imports this.
"""
