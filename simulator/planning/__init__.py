"""What a run will need before it is begun."""
