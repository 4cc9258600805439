"""Quantization error by recipe and tensor, for choosing a recipe.

`tensors` supplies the data, `variants` the recipes with their flags, `measure` and `compare` the errors, `scope` the
errors of a layer that mixes two recipes, and `products` the errors of GEMMs of quantized tensors; `tables` and
`pictures` show them. May import everything below `studies/`; only commands import this folder.
"""
