"""Input tensors of cases: named distributions, tensors of files, and their dtypes.

May import `errors`, `files` and `contract/`, and never oracles or kernels, which must not share a mistake with their
inputs.
"""
