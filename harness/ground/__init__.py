"""What every part needs and none owns: how processes end, locks, seconds, YAML with lines, printed commands."""
