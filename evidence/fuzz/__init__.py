"""Fuzz: inputs changed at random, which may be refused, but never end in a traceback, a hang or a wrong green.

`driver` runs trials that a seed and a number name, so that a hunt can be resumed and an offender repeated. Every other
module is a kind of input: its `trial` makes one from a random generator, hands it to the harness, and says what was
wrong. One that has to load or compile things first does that in `prepare`.
"""
