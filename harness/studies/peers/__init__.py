"""Our kernels beside public ones: the same input, bytes first, then times in random turns on one GPU.

Every contest is a case of ours and those who can run it. Each side is timed by its own call alone: what a peer returns
is put into our layout outside the timed region, and none of its time is spent on our conventions.
"""
