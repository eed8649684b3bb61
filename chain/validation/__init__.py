"""Validity: each rule of the protocol once, with its reason. A rule raises; returning means it holds.

Together with the votes these rules guarantee that no two honest members ever finalize different blocks at one height,
and that a final block's knowledge is the exact aggregate of valid posts of members that were due. Whether a valid block
*deserves* a vote is policy, which is kept elsewhere: it depends on what a peer saw, and when.

In the order of docs/protocol.md: ``posts``, ``votes``, ``certificates``, ``evidence``, ``header`` and ``body`` of a
block, and ``changes`` of the membership. All but these need a ``signature``. ``transition.py`` applies them.

Cheap rules come before costly ones: membership before signatures, one signature before a proof of work, both before
the many signatures of a body.
"""
