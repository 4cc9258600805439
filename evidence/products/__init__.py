"""The errors of GEMMs of quantized tensors, for whole layers: `products` measures them, `accuracy` holds claims.

`layers` are the products of a layer, `error_model` and `product_bounds` say how large an error may be. Only commands
import this folder.
"""
