"""Why bytes differ: a comparison field by field, the likely cause by name, and one block step by step."""
