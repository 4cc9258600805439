"""Compiled code as a subject: a card describes the launches, their arguments, and the recipe for the right bytes.

`schema` is the card's form, `card` reads and checks it, `code` finds the kernels in PTX, a cubin or a `.cu`,
`arguments` makes the bytes of their parameters, `forms` is how their arrays differ from the contract's, `launches`
binds them for the programs of `harness.device`, `verify` gives the verdict, and `draft` writes a card from PTX.
"""
