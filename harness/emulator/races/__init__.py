"""Shadow memory, for races: who accessed which bytes last, and whether anything orders them.

Imports `memory` and `registers`.
"""
