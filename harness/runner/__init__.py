"""A suite run under pytest: its cases, processes, journal and folder, its bench, summary and exit code.

May import every folder but `gate/`, `studies/`, `shrink/` and `commands/`; pytest's hooks for it are in
`harness.plugin`. `records`, `journal` and `run_folder` say what a run's files hold, import only the contract, `jit/`,
`files` and verdicts, and may be imported by every folder that reads or writes records.
"""
