"""Genesis document and learning method together: the task of a federation, and descriptions of both for people."""
