"""What a run and a gate leave to be read: tables, HTML pages, JUnit, OpenMetrics and code quality.

Everything here is made from records and judgements, keyed by the case id; nothing runs, times or judges. It may import
`verdict`, `errors`, `files`, the records of `runner/`, and `bench/statistics`.
"""
