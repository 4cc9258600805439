"""What a suite run keeps and says: selection, journal, summary, exit code; the pytest hooks are in `harness.plugin`."""
