"""What a run keeps so that it can go on after an interruption."""
