"""The arithmetic of instructions, as functions on register arrays. Imports `registers` alone."""
