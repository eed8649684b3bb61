"""The command line: one file a command. It parses, calls and prints; the functions that it calls lie below it."""
