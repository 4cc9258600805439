"""Named distributions of inputs: each aims at one thing a quantizer can get wrong.

A distribution is a public function of `ordinary`, `edges`, `specials` or `structure`, and its name is what suites write
after `inputs:`. It is called as `draw(rng, rows, cols, dtype)`, and returns float32, or `dtype` to keep exact bits.
These files import `dtypes` and `tensor`, and nothing of the oracles.
"""
