"""PTX text to data. Nothing here knows what an instruction does."""
