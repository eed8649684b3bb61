"""Checks of a run that is repeated: a check that passed for one peer need not be computed for the others.

Each peer still remembers for itself what it has checked, since its behaviour depends on that; only the computing is
saved. If the peers shared one memory, the trace would be the same in fewer events, as a peer that finds an aggregate
there does not ask for one. The results of a resumed run would then differ from those of an uninterrupted run.
"""

from collections import OrderedDict
from collections.abc import Hashable

from fedchain.node.core.checks import CHECKED_MAX, KNOWLEDGE_MAX, KNOWLEDGE_SIZE_MAX
from fedchain.node.core.jobs import JobKey, Knowledge


class Remembered:
    """The newest results of checks by any peer, see :class:`~fedchain.node.core.checks.PassedElsewhere`."""

    def __init__(self) -> None:
        self._checked: OrderedDict[Hashable, None] = OrderedDict()  # signatures and posts that are good
        self._knowledge: OrderedDict[JobKey, Knowledge] = OrderedDict()

    def has(self, identity: Hashable) -> bool:
        """Whether some peer has found a signature or post to be good."""
        return identity in self._checked

    def keep(self, identity: Hashable) -> None:
        """Note that some peer has found it to be good."""
        self._checked[identity] = None
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """A knowledge that some peer has recomputed; None if nobody has."""
        return self._knowledge.get(key)

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """Note a recomputed knowledge."""
        self._knowledge[key] = knowledge
        while len(self._knowledge) > 1 and (len(self._knowledge) > KNOWLEDGE_MAX or self._is_large()):
            self._knowledge.popitem(last=False)

    def _is_large(self) -> bool:
        return sum(len(known.data) for known in self._knowledge.values()) > KNOWLEDGE_SIZE_MAX
