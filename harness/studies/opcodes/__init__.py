"""Which PTX instructions the emulator executes, which of them the kernels use, and the test that shows what each does.

A test says by the marker `covers` which mnemonics it is there for, by their beginnings, and a plugin (`recorder`) notes
which of those it had the emulator execute: only what is both counts. Of several tests, the one that executes the fewest
different instructions is named.
"""
