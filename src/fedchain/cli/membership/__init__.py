"""Commands about the members of a running federation."""
