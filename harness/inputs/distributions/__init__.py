"""Named distributions of inputs: each aims at one mistake that a quantizer can make.

A distribution is a public function of `ordinary`, `edges` or `specials`; suites list its name under `inputs:`. It is
called as `draw(rng, rows, cols, dtype)` and returns float32, or `dtype` to keep exact bits. These files may import
`dtypes` and `contract/`, and never oracles.
"""
