"""The models, their shapes, and what methods read from them and write into them."""
