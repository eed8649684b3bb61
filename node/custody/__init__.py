"""Data that must not be lost, copied or read by others: journals, secrets, ledgers, key shares and passphrases."""
