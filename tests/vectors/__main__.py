"""Print ``docs/vectors.json``: ``python -m tests.vectors > docs/vectors.json``."""

from tests.vectors.node import to_json, vectors

if __name__ == "__main__":
    print(to_json(vectors()))
