"""Evidence about recipes, kernels and the harness itself: what a study measures, no run and no verdict needs."""
