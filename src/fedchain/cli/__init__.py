"""The command line: one file a command. It parses, calls and prints; what it calls lies below it."""
