"""What all tests need."""

import os
import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs deaf to Ctrl-C, and those make their children so; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two test processes share two cores: tensors on as many threads as there are cores would wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")
