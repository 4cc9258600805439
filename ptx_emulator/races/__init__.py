"""Shadow memory, for races: who accessed each byte last, and whether anything orders the accesses.

Knows nothing of a batch: it is told of accesses and barriers. Imports `memory`, `ptx.syntax` and `compiled.layout`: the
compiled interpreter reads and writes the same tags.
"""
