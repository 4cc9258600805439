"""Decode instructions into steps that run on a batch. One file for each family of PTX instructions.

`arithmetic`: every function of operands alone, such as `add`, `fma`, `cvt`, `shf`; what they compute is in the folder
`arithmetic`. `moves`: mov, selp, slct, setp, prmt, lop3, cvta. `load_store`: ld, st, atom, red, fence. `cp_async`.
`warp_sync`: shfl, vote, redux, match, elect, activemask. `mma`: mma, ldmatrix. `wgmma`. Branches and barriers are in
`decode`. A mnemonic that is not a row of arithmetic also goes into `catalogue`.
Imports everything beside it but `decode` and `launch`.
"""
