"""Exit codes of the commands."""

EXIT_DIFFERENT = 1
"""The command ran, but its check failed, or it could not go on."""

EXIT_BAD_INPUT = 2
"""The command could not run; standard error says why in one line."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

EXIT_CLOSED_PIPE = 141
"""The reader of the output closed it, as shells count a program that SIGPIPE ended."""
