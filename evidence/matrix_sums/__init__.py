"""In which order does a matrix unit sum? Compare a published model of Hopper's unit with a GPU.

`model` is the sum as MMA-Sim describes it (arXiv 2511.10909), `draws` makes products that tell orders apart,
`products.cu` gives one instruction each of them, and `compare` finds the sum that the model gets wrong. On an H200 none
is, so that the order is part of the contract (NUMERICS 10.2). The emulator and both oracles have this sum as well, each
written apart from the others and from this model.
"""
