"""What others can read in a post: attacks that look for a client's images, and how near they come."""
