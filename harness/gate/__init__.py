"""Is this slower? Times against the committed baseline, or against another revision of the kernels, and what follows.

`against_baseline` compares a run with stored times. For `harness gate --base`, `checkout` fetches the other revision's
files, `revision_bench` times one case of both in an order that `interleave` draws, `decision` says what the samples
show, and `revision_run` goes through the cases. `report` writes both kinds; `self_test` plants slowdowns. These files
may import `bench/`, `device/`, `verify/`, `report/` and `runner/`'s records; only commands and `studies/` import them.
"""
