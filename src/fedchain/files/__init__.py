"""Files that all parts use: names of files and folders, TOML tables, help texts from docstrings of fields."""
