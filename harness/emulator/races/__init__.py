"""Shadow memory: who touched which bytes last, and whether something ordered them."""
