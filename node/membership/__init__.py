"""Members of a running federation: what operators ask of their nodes, and how newcomers come in."""
