"""Quantization error by recipe and tensor, for choosing a recipe.

`tensors` supplies the data, `variants` the recipes with their flags, `measure` and `compare` the errors, `scope` the
errors of a layer that mixes two recipes; `tables` and `pictures` show them. Only commands and
`evidence` import this folder.
"""
