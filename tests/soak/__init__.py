"""Campaigns that take minutes and the whole machine: faults, load and attacks against real processes."""
