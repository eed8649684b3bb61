"""What methods of one kind share: each method in `methods/` builds on one of these."""
