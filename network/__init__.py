"""Messages, and how they travel between peers."""
