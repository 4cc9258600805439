"""README and `docs/` show what `results/` holds and what commands print: figures are rendered, transcripts rerun."""
