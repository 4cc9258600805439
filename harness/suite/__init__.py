"""Suites: `suites/S.yaml`, what may stand in it, and the cases it makes."""
