"""Our kernels beside public ones: the same input, bytes first, then times in random turns on one GPU.

A contest is a case of ours and the peers that can run it. Each implementation is timed by its own call alone: what a
peer returns is put into our layout outside the timed region, and none of its time is spent on our conventions.
"""
