"""The experiments of the papers, one TOML file each: ``fedchain reproduce`` lists and runs them."""
