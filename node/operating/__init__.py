"""What an operator sees and asks of a node: checks before a start, status, metrics, logs, test networks."""
