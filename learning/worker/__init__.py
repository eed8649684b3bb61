"""What a training process holds: clients with their models, data and private state, and the files of these."""
