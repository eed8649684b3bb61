"""Parts that several commands share: options, errors in one line, exit codes, completion."""
