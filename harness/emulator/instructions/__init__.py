"""How each family of instructions is decoded into steps on a batch. May import all folders beside it."""
