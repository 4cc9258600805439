"""What the kernels must reach on a GPU, line by line, and what they reached in a run."""
