"""The trainer's file: its last answer and its client's state after it, in one file, so that they never disagree.

Large bytes lie beside it, in files that it names by their hash. They are written first, and those that it names no more
go last, or at the next start if the process ended in between, as on a full disk. The file ends with its own hash: a
model of other bits trains on, and nothing would tell. One that is damaged is its operator's to set aside, since the
model that is in it may have a backup.

The first answer to a question is the answer, also after a restart. A refusal is not kept: once its reason is put right,
such as a ledger that was gone, the client contributes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fedchain.crypto.durable import set_aside_damaged, sync_file, sync_folder, write_file
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.layout import NO_FILE, is_device
from fedchain.files.spool import move_file, path_of
from fedchain.learning.executors.executor import Answer, InFile, QuestionId
from fedchain.learning.executors.remembering import Kept
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.workers.frames import PipeBroken, hand_over, read_frame, take_over, to_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTraining:
    """The content of the file."""

    chain_id: Hash
    """The federation."""
    member: int
    """The peer's place among the members."""
    phase: str
    """Name of the phase of the last contribution."""
    round: int
    """Its round."""
    knowledge: Hash | None
    """SHA-256 of what the client was given; None in a file of a version that did not write it down."""
    answer: list[Any]
    """The payload, the local steps, and the measurements as JSON."""
    checkpoint: bytes
    """The client's model and the method's memory of the client, after that contribution."""

    @property
    def measured(self) -> dict[str, Any]:
        """The trainer's measurements of the model; {} after a phase that does not train."""
        found: dict[str, Any] = json.loads(self.answer[-1])
        return found

    def encode(self) -> bytes:
        """The file's bytes: a frame, and its SHA-256."""
        payload, *rest = self.answer
        frame = to_frame(
            [
                [self.chain_id, self.member],
                [self.phase, self.round, self.knowledge],
                [_in_folder(payload), *rest],
                _in_folder(self.checkpoint),
            ]
        )
        return frame + sha256(frame)


def _in_folder(data: bytes) -> Any:
    """Bytes for the file: themselves, or the name of a file beside it with their hash."""
    handed = hand_over(data)
    return handed if isinstance(handed, bytes) else [Path(str(handed[0])).name, handed[1]]


def _from_folder(folder: Path, written: Any) -> bytes:
    """The bytes that `_in_folder` wrote. Raises PipeBroken: a file beside it is gone, or damaged."""
    if isinstance(written, bytes):
        return written
    name, digest = written
    path = folder / Path(name).name
    data = take_over([str(path), b""])
    if (found := sha256(data)) != digest:
        raise PipeBroken(f"{path} hashes to {found.hex()}, not {digest.hex()}")
    return take_over([str(path), digest])


def read_training(path: Path) -> KeptTraining:
    """Read the file, and those beside it that it names.

    Raises:
        OSError: it is not there, or cannot be read.
        PipeBroken: it is damaged; the message names the command that sets it aside.
    """
    try:
        return _read(path)
    except PipeBroken as error:
        raise PipeBroken(
            f"{path} is damaged: {error}; restore it from a backup, or run: fedchain node repair {path.parent}"
        ) from None


def require_own(path: Path, found: KeptTraining, chain_id: Hash, member: int) -> None:
    """Refuse a file of another member, or federation: this one's next answer would take its place.

    Raises PipeBroken.
    """
    if (found.chain_id, found.member) != (chain_id, member):
        raise PipeBroken(
            f"{path} has the model of peer {found.member} of chain {found.chain_id.hex()[:16]}…, and this is peer "
            f"{member} of chain {chain_id.hex()[:16]}…: put this one's in its place, or move it away"
        )


def repair_training(path: Path) -> str:
    """Rename the file, to a free name beside it, if it is damaged; what was done, for its operator, or nothing.

    Raises OSError.
    """
    try:
        if path.exists():
            _read(path)
        return ""
    except PipeBroken as error:
        aside = set_aside_damaged(path)
        return f"{path} is damaged ({error}), and set aside as {aside}; this member's model begins anew"


def _read(path: Path) -> KeptTraining:
    if is_device(path):
        raise PipeBroken(f"it is {NO_FILE}")
    with path.open("rb") as file:
        content, digest = read_frame(file), file.read()
    found = sha256(to_frame(content))  # whose bytes are those that were read: one value has one encoding
    if digest not in (b"", found):  # at first no hash was written
        raise PipeBroken(f"its content hashes to {found.hex()}, and {digest.hex()[:64]} is behind it")
    match content:
        case [[bytes(chain_id), int(member)], [str(phase), int(number), *given], [payload, *rest], checkpoint]:
            return KeptTraining(
                chain_id=chain_id,
                member=member,
                phase=phase,
                round=number,
                knowledge=given[0] if given else None,
                answer=[_from_folder(path.parent, payload), *rest],
                checkpoint=_from_folder(path.parent, checkpoint),
            )
    raise PipeBroken("it holds something else than a trainer's answer")


class KeptAnswer:
    """The :class:`fedchain.learning.executors.remembering.Answers` of a node: its member's last one, in a file.

    Args:
        path: of the file.
        chain_id: the federation.
        member: this peer's place among the members.
        checkpoint: gives the client's state as it is now.

    Raises:
        OSError: the disk refuses.
        PipeBroken: the file is damaged, or of another member.
    """

    def __init__(self, path: Path, chain_id: Hash, member: int, checkpoint: Callable[[], bytes]) -> None:
        self._path, self._chain_id, self._member, self._checkpoint = path, chain_id, member, checkpoint
        self.kept = read_training(path) if path.exists() else None
        """The last answer; None if there is none yet."""
        if self.kept is not None:
            require_own(path, self.kept, chain_id, member)
        self._drop_all_but(self.kept)

    def recall(self, question: QuestionId) -> Kept | None:
        """See :class:`Answers`."""
        kept = self.kept
        if kept is None or (kept.phase, kept.round) != (question.phase, question.round):
            return None
        return None if kept.knowledge not in (None, question.knowledge) else partial(read_answer, kept.answer)

    def begin(self, question: QuestionId) -> Path | None:
        """See :class:`Answers`."""
        return None

    def is_next_kept(self, client: int) -> bool:
        """See :class:`Answers`: only what was asked before is kept."""
        return False

    def keep(self, question: QuestionId, answer: Answer | InFile, together: Sequence[QuestionId]) -> Kept:
        """See :class:`Answers`. Also removes what is not needed any more. Raises OSError."""
        assert not isinstance(answer, InFile), "the trainer computes in its own process"
        if isinstance(answer, Contribution):
            kept = KeptTraining(
                chain_id=self._chain_id,
                member=self._member,
                phase=question.phase,
                round=question.round,
                knowledge=question.knowledge,
                answer=[self._place(answer.payload), *write_answer(answer)[1:]],
                checkpoint=self._place(self._checkpoint()),
            )
            write_file(self._path, kept.encode())
            self._drop_all_but(kept)
            self.kept = kept
        return lambda: answer

    def _place(self, data: bytes) -> bytes:
        """Give bytes that were put together in a file their place beside this one, where they outlive the process."""
        spooled = path_of(data)
        if spooled is not None:
            sync_file(spooled)
            move_file(data, self._path.with_name(f"{self._path.stem}.{sha256(data).hex()[:16]}.bytes"))
            sync_folder(self._path.parent)
        return data

    def _drop_all_but(self, kept: KeptTraining | None) -> None:
        """Remove large bytes that no file names, or none any more. Raises OSError."""
        named = () if kept is None else (path_of(kept.answer[0]), path_of(kept.checkpoint))
        for beside in self._path.parent.glob(f"{self._path.stem}.*.bytes"):
            if beside not in named:
                beside.unlink(missing_ok=True)

    def left(self, client: int) -> Path | None:
        """See :class:`Answers`: the trainer has put its client back when it started."""
        return None


def write_answer(made: Contribution) -> list[Any]:
    """A contribution for a frame: the payload, the local steps, and everything else as JSON."""
    record = msgspec.to_builtins(replace(made, payload=b""))
    del record["payload"], record["steps"]
    local = record.pop("local") or {}
    return [hand_over(made.payload), made.steps, json.dumps(local | record)]


def read_answer(answer: Sequence[Any]) -> Contribution:
    """Read what `write_answer` wrote."""
    payload, steps, text = answer
    record = json.loads(text)
    local = {field.name: record.pop(field.name) for field in fields(Evaluation) if field.name in record}
    others = {"payload": "", "steps": steps, "local": local or None, "received": None} | record
    return replace(msgspec.convert(others, Contribution), payload=take_over(payload))
