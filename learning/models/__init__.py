"""The models, their shapes, and the vectors that methods read from them and write into them."""
