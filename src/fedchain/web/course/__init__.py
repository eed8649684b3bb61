"""The course of a federation on its pages: what went wrong in a simulation, and how members voted."""
