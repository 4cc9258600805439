"""Our kernels against public ones: on the same input, bytes first, then times in random order on one GPU.

A contest (`contests`) is one of our cases and the peers that can run it. `prepared` makes its inputs, `implementations`
launches both sides, `peer_bench` checks and times them, and `tables` prints the results. Only a peer's own call is
timed: its results are converted to our layout outside the timed region. Only `commands/peers` and
`agreement` import this folder.
"""
