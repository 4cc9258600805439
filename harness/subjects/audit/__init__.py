"""What a subject must go through: our kernels are launched by us, but a subject is code of others that we only call.

`verify` looks for what bytes alone do not show, `offence` has the names of what it finds, `timing` holds every timed
round to the bytes it must have written. `attack` proves all of it with subjects that cheat.
"""
