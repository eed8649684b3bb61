"""The members that come and go: their records, and the changes that blocks count."""
