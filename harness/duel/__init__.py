"""Two revisions of the kernels against each other, in one process and on the same buffers: `harness gate --base`.

`revision` fetches the other side's files, `sampling` takes times in random turns, `judging` says what they show.
"""
