"""The fast path: an interpreter of decoded instructions that Numba compiles once, and keeps in the cache.

It runs a block's straight-line code over all its lanes and stops before an instruction that it does not know, or
whose accesses are not plainly fine. The NumPy step of that instruction then does it, or finds the fault and says so.

To compile an arithmetic instruction, name in its row in `ptx_emulator.arithmetic` a form that does what the NumPy step
does; see `lanes`. Of these files only `layout` and `opcodes` may be imported early: the others load Numba.
"""
