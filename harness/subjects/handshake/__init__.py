"""Handshakes: one kernel writes what another reads, with the unpromised bytes between them overwritten. Each is a card
or one of our recipes.

`schema` is the form of a pair's file, `pair` reads it and makes its cases, `between` compares what both sides say of
each array and hands its memory over, `side` runs one of them, `poison` finds out whether it reads what the producer
does not define, and `verify` says which of them is to blame.
"""
