"""Light clients, and final blocks far above the head: certificates alone prove both."""
