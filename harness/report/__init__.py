"""The output of a run and of a gate: tables, HTML pages, JUnit, OpenMetrics and code quality.

Made from records and judgements, by case id; no code here runs, times or compares a case. May import `verdict`,
`errors`, `files`, `text`, `suite/`, `jit/signature`, `bench/statistics` and `records/`.
"""
