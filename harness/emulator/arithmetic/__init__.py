"""What instructions compute, as functions on register arrays: no lanes, no memory, no PTX text."""
