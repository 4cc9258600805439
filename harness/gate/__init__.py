"""Is a kernel slower? Compare times with the committed baseline, or with another revision of the kernels.

`against_baseline` compares a run with the stored times that `baseline` keeps, where `comparable` says that they can be,
and `times` judges one case. `second_process` asks again. For `harness gate --base`, `checkout` fetches the other
revision, `revision_bench` times one case of both in the random order of `interleave`, `decision` derives the verdict,
and `revision_run` goes through the cases. `report` writes both kinds. May import `contract/`, `suite/`, `jit/`,
`device/`, `verify/`, `records/`, `bench/` and `report/`; only `commands/` and the evidence import it.
"""
