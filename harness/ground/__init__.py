"""What every part needs and none owns: how processes end, processes one to an item, locks, seconds, YAML with lines,
printed commands."""
