"""The state of a training process: clients with their models, data and private state, and the files of these."""
