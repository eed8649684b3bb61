"""Files that all parts read: names of files and folders, TOML tables, help texts from docstrings of fields."""
