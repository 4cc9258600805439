"""The audit of a subject: we launch our own kernels, but a subject is other people's code that we only call.

`verify` finds offences that bytes alone do not show, `violations` names them, `timed_calls` checks the bytes of every
timed round, `fresh_data` draws its data, `fresh_copies` fills the memory with them and compares what was written,
`wall_clock` bounds its time, and `conventions` distinguishes other roundings from bugs. `self_test` proves it all with
subjects that cheat. Only code that judges a subject is here; it imports subjects, verification and bench.
"""
