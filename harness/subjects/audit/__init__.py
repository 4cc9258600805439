"""What a subject must go through: our kernels are launched by us, but a subject is code of others that we only call.

`verify` finds what bytes alone do not show, `violations` names what it finds, `timed_calls` checks the bytes of every
timed round, `fresh_data` draws its data, `fresh_copies` fills the memory with them and compares what was written,
`wall_clock` bounds its time, and `conventions` distinguishes other roundings from bugs. `self_test` proves it all with
subjects that cheat. Only what judges a subject lives here; imports subjects, verification and bench.
"""
