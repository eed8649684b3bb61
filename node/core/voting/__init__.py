"""What this member signs about the open height, and what keeps it from ever taking a word back."""
