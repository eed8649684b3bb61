"""Where a node keeps its chain: records, large contents, and the lock of its writer."""
