"""The simulation itself: peers, network and time."""
