"""Quantization error by recipe and tensor, for choosing a recipe.

`tensors` supplies the data, `variants` the recipes with their flags, `measure` the error of one on another, `compare`
those of many, and of a layer that mixes two recipes; `tables` shows them. Only commands and `evidence` import this
folder.
"""
