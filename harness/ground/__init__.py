"""Helpers that every part needs and none owns: how processes end, work shared among them, locks, seconds, YAML with
lines, printed commands."""
