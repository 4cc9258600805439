"""The bytes that every recipe must produce, computed twice: with NumPy and with torch.

The module named after a recipe states its contract as numbered steps and has these functions:

    refuse(case)                 raise ContractError for a size or combination of flags that the recipe does not define
    outputs(case)                the fields that the kernel writes
    inputs(case, x)              the arrays that the kernel reads
    numpy_oracle(case, tensors)  the bytes of every field, from the arrays of `inputs`
    torch_oracle(case, tensors)  the same fields from torch alone, on the device of the tensors
    encode_steps(case)           optional: how the recipe encodes, as arguments of the diagnosis' `Steps`

A quantizer also states `MULTIPLE`, which its extents are multiples of; `GRANULARITY`, the extent of one amax, unless a
flag decides it; and `PLAIN`, its flags at their plainest, for recipes that read quantized tensors.

Files named `torch_*` are torch's side and share no code with the others, which are NumPy's. All of them may import
`contract/`, `errors` and each other.
"""
