"""The output of a run and of a gate: tables, HTML pages, JUnit, OpenMetrics and code quality.

Made from records and judgements, keyed by the case id; nothing here runs, times or judges. May import
`verdict`, `errors`, `files`, the records of `runner/`, and `bench/statistics`.
"""
