"""PTX text to data. Does not know what an instruction does; imports `errors` alone."""
