"""PTX instructions that the emulator executes, that the kernels use, and the test of each (`instructions`).

A test declares with the marker `covers` the mnemonics it tests, by prefix, and a pytest plugin (`recorder`) notes which
of those the emulator executed in it. If several tests cover a mnemonic, the one with the fewest different instructions
is listed. Only `commands/opcodes` imports this folder.
"""
