"""Operating a node: checks before a start, status, metrics, logs, test networks."""
