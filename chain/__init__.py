"""The ledger: what a federation agreed on, and the rules by which anyone can check it."""
