"""The tensors a case is given: named distributions, tensors of files, and the dtypes they come in.

May import `errors`, `files` and the extents of `tensor`; nothing of the oracles or kernels, which must not share a
mistake with their inputs.
"""
