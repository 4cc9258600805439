"""What public implementations make of the inputs of the vectors: equal, another order, another convention, or a bug.

`answers` runs the subjects that a CPU can run, `committed` reads what a GPU gave from the tables of `results/`, and
`page` writes the matrix. Imports `harness.vectors` and `harness.subjects`.
"""
