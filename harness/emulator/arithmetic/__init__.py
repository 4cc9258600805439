"""What instructions compute, as functions on register arrays. Imports `registers` alone."""
