"""A node's storage of its chain: records, large contents, and the lock of its writer."""
