"""What all tests need."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs deaf to Ctrl-C, and those make their children so; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
