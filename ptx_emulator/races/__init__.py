"""Shadow memory, for races: who accessed each byte last, and whether anything orders the accesses.

Imports `memory`, `registers` and `compiled.layout`: the compiled interpreter reads and writes the same tags.
"""
