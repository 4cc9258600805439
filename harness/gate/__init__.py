"""Is a kernel slower? Compare times with the committed baseline, or with another revision of the kernels.

`against_baseline` compares a run with the stored times that `baseline` keeps, where they can be compared. For `harness
gate --base`, `revision` fetches the other one, `revision_bench` times one case of both, and `revision_run` goes through
the cases. `decision` derives the verdict of both kinds, `second_process` asks again, `report` writes the pages, from a
file only if `recomputed` finds in it what its samples give. May import `contract/`, `suite/`, `jit/`,
`device/`, `verify/`, `records/`, `bench/` and `report/`; only `commands/` and the evidence import it.
"""
