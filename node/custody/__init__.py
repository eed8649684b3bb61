"""What must not be lost, copied or read by others: the journal, secrets, ledgers, key shares and passphrases."""
