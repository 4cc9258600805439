"""Compare public implementations on the vectors' inputs: equal, another order, another convention, or a bug.

`answers` runs the subjects that a CPU can run, `committed` reads GPU results from the tables of `results/`, and `page`
writes the matrix. Imports `harness.vectors` and `harness.subjects`.
"""
