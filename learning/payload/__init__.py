"""Tensors as bytes: the form in which payloads and knowledge are hashed, signed and sent."""
