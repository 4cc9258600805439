"""Check that a drawn tensor has the properties that its distribution promises, independently of the drawing code.

A promise is a public function of `ordinary`, `edges` or `specials` with the name of its distribution. It
takes the float32 values, (rows, cols), and the dtype they have, and yields claims. These files import NumPy and each
other, and neither distributions nor oracles, so that no mistake is in both.
"""
