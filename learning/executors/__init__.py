"""The door to training: what a client is asked, what it answers, and where its answers are computed and kept."""
