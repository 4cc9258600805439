"""One module per command of `harness`; each exports a click command called `command`."""
