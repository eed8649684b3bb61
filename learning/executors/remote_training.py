"""Training in a worker that shares no folder with its executor: files travel as bytes, beside calls and replies."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from fedchain.allocator import TRAINING_MAPPED_SIZE, return_large_blocks
from fedchain.crypto.hashing import Hash
from fedchain.files.scratch import Scratch
from fedchain.files.spool import write_named
from fedchain.learning.device import use_threads
from fedchain.learning.executors.executor import InFile
from fedchain.learning.executors.handover import Incoming
from fedchain.learning.executors.packing import Reply, pack_reply
from fedchain.learning.executors.serving import Call, replies_to
from fedchain.learning.executors.workers import Readable
from fedchain.learning.payload.part_folder import PARTS, PartFolder
from fedchain.learning.registry import import_file
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan, Named


@dataclass(frozen=True, slots=True)
class Sent:
    """Calls on their way to a worker. A state that is put back is in its call as bytes."""

    worker: int
    calls: Sequence[Call]
    parts: Mapping[int, Mapping[Hash, Readable | None]]
    """By client, what has changed since the last call: parts that it got; None for those that it has no longer."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files that a call has left at its worker, as bytes."""

    state: bytes | None = None
    """The client after a contribution, as it is written down."""
    model: bytes | None = None
    """The model that was asked for."""
    parts: Sequence[bytes] = ()
    """The parts that a contribution lists."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Replies on their way back, to all calls of one :class:`Sent`."""

    worker: int
    replies: Sequence[bytes]
    """As :func:`fedchain.learning.executors.packing.pack_reply` makes them."""
    written: Mapping[int, Written] = field(repr=False)
    """By number of the call."""


class RemoteTraining:
    """The work of a worker: it builds a plan's learner when it is first asked, from the data of its own machine.

    Args:
        plan: the plan as bytes.
        clients_size_max: bytes of the clients that are held in memory; None: all that are asked.
        own: files of the user's own modules that the plan names, by name; they lie in the same place there.
    """

    def __init__(
        self, plan: bytes, clients_size_max: int | None, own: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        use_threads()
        return_large_blocks(TRAINING_MAPPED_SIZE)
        self._plan, self._clients_size_max, self._own = plan, clients_size_max, own
        self._temporary = Scratch()
        self._folder, self._incoming = Path(self._temporary.name), Incoming()
        self._opened: Learner | None = None

    def do(self, sent: Sent) -> Answered:
        """See :class:`fedchain.learning.executors.workers.Work`."""
        learner = self._opened = self._opened or self._open()
        for client, parts in sent.parts.items():
            folder = self._parts_of(client)
            for part_hash, part in parts.items():
                if part is not None:
                    folder.write(part_hash, part.read())
            if None in parts.values():
                folder.keep_only({item for item in folder.hashes() if item not in parts or parts[item] is not None})
        calls = [self._local(call) for call in sent.calls]
        replies, written = [], {}
        for call, reply in zip(calls, replies_to(learner, self._folder, self._incoming, calls), strict=True):
            written[call.number] = self._written(call, reply)
            replies.append(pack_reply(_whole(reply), f"peer {call.client}"))
        return Answered(sent.worker, replies, written)

    def close(self) -> None:
        """Delete its files."""
        self._temporary.cleanup()

    def _open(self) -> Learner:
        for name, file in self._own.items():
            if name not in sys.modules and find_spec(name) is None:
                sys.modules[name] = import_file(f"module {name}", Path(file))
        parts = Named("fedchain.learning.payload.part_folder:parts_of_each", (str(self._folder / PARTS),))
        learner = build_learner(replace(LearnerPlan.decode(self._plan), parts=parts))
        if self._clients_size_max is not None:
            learner.limit_clients(self._clients_size_max, self._folder)
        return learner

    def _local(self, call: Call) -> Call:
        """A call with files of this machine."""
        path = self._folder / f"call-{call.number}"
        match call.method:
            case "contribute":
                return replace(call, state=path)
            case "restore":
                write_named(call.arguments[0], path)
                return replace(call, arguments=(path, b""))
            case "save_model":
                return replace(call, arguments=(path, b""))
        return call

    def _written(self, call: Call, reply: Reply) -> Written:
        """The files that a call has left, which go."""
        path = self._folder / f"call-{call.number}"
        data = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        if call.method == "save_model":
            return Written(model=data)
        if call.method != "contribute":
            return Written()
        made = reply.value.made if isinstance(reply.value, InFile) else reply.value
        listed = made.parts if isinstance(made, Contribution) else ()
        return Written(state=data, parts=[self._parts_of(call.client).read(item) for item in listed])

    def _parts_of(self, client: int) -> PartFolder:
        return PartFolder(self._folder / PARTS / str(client), is_durable=False)


def _whole(reply: Reply) -> Reply:
    """A reply with the payload itself."""
    if not isinstance(reply.value, InFile):
        return reply
    made = replace(reply.value.made, payload=reply.value.path.read_bytes())
    reply.value.path.unlink()
    return replace(reply, value=made)


def own_modules(plan: LearnerPlan) -> dict[str, str]:
    """The file that a plan's method is from, by the name of its module, if it is one of the user's own."""
    name, _, _ = plan.config.method.partition(":")
    file = getattr(sys.modules.get(name), "__file__", None)
    return {} if file is None else {name: file}
