"""What a case reads and what is expected of it, looked at by other code than drew, quantized and expected it.

The kernel and both oracles read the same inputs, so a mistake in one of these would weaken all three alike. May import
`inputs/promises`, the stages of `suite/`, and no oracle.
"""
