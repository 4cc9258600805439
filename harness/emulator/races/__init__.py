"""Shadow memory, for races: who accessed which bytes last, and whether anything orders them.

Imports `memory`, `registers` and `compiled.layout`: the compiled interpreter reads and writes the same tags.
"""
