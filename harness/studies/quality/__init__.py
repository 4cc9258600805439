"""Quantization error by recipe and tensor, for choosing a recipe.

`tensors` supplies the data, `variants` the recipes with their flags, `measure` and `compare` the errors, `scope` those
of a layer that mixes two recipes, and `products` those of GEMMs of quantized tensors; `tables` and `pictures` show
them. May import everything below `studies/`; only commands import this folder.
"""
