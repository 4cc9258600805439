"""What a drawn tensor must be like for its distribution to aim at what it says, checked by other code than drew it.

A promise is a public function of `ordinary`, `edges`, `specials` or `structure` with the name of its distribution. It
takes the float32 values, (rows, cols), and the dtype they have, and yields claims. These files import NumPy and each
other, and neither distributions nor oracles, so that no mistake is in both.
"""
