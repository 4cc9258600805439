"""What machines read of a run: JUnit, OpenMetrics and code quality, all keyed by the case id."""
