"""How good the numbers of a recipe are, as its bytes are right: error by recipe and input, for choosing a recipe."""
