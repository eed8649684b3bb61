"""The trainer's file: its last answer and its client's state after it, in one file, so that they never disagree."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.crypto.hashing import Hash
from fedchain.node.workers.frames import PipeBroken, read_frame, to_frame


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
    answer: list[Any]
    """The payload, the local steps, and the measurements as JSON."""
    checkpoint: bytes
    """The client's model and the method's memory of the client, after that contribution."""

    @property
    def measured(self) -> dict[str, Any]:
        """The trainer's measurements of the model; {} after a phase that does not train."""
        found: dict[str, Any] = json.loads(self.answer[-1])
        return found

    def to_frame(self) -> bytes:
        """The file's bytes."""
        return to_frame([[self.chain_id, self.member], [self.phase, self.round], list(self.answer), self.checkpoint])


def read_training(path: Path) -> KeptTraining:
    """Read the file.

    Raises:
        OSError: it is not there, or cannot be read.
        PipeBroken: it is damaged.
    """
    with path.open("rb") as file:
        content = read_frame(file)
    match content:
        case [[bytes(chain_id), int(member)], [str(phase), int(number)], list(answer), bytes(checkpoint)]:
            return KeptTraining(
                chain_id=chain_id, member=member, phase=phase, round=number, answer=answer, checkpoint=checkpoint
            )
    raise PipeBroken(f"{path} holds something else than a trainer's answer")
