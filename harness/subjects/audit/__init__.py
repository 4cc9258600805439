"""The audit of a subject: we launch our own kernels, but a subject is other people's code that we only call.

`verify` gives the verdict, `findings` what is seen and which rule it breaks, `violations` names the rules, `bench`
checks the bytes of every timed round and bounds its time, `fresh_data` draws its data and compares what was written on
them, and `conventions` distinguishes other roundings from bugs. Only code that judges a subject is here; it imports
subjects, verification and bench.
"""
