"""Instructions whose bits PTX leaves open, within bounds: `rcp.approx`, `ex2.approx` and their kin."""
