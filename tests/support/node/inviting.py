"""Members that invite, on a stage, and newcomers that come on their invitations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from fedchain.chain.encoding import decode
from fedchain.chain.exceptions import Refused
from fedchain.chain.membership.change import Change
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.core.effects import Refuse
from fedchain.node.core.events import ChangeSubmitted
from fedchain.node.membership.invitation import Invitation, request_on
from fedchain.node.membership.requests import Requests
from tests.support.chain.builders import keys
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import Stage

NEWCOMER = keys(9)[8]

PARTS = 9


class Host(Stage):
    """A member's node on a stage, and its invitations."""

    def __init__(self, folder: Path, number: int = 0, *, is_heard: bool = True, **fields: Any) -> None:
        super().__init__(living_genesis(5, **fields), number, is_heard=is_heard)
        self.admitted: dict[str, Sequence[PublicKey]] = {}
        self.places: dict[PublicKey, list[str]] = {self.me: ["/ip4/127.0.0.1/tcp/4001"]}
        self.folder = folder
        self.head_moved = anyio.Event()
        self.requests = self.again()

    def again(self) -> Requests:
        """The requests after a restart."""
        return Requests(self, keys(5)[self.chain.state.roster.seats[self.me]], self.folder, lambda: self.places, PARTS)

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        found = [item for item in self.handle(ChangeSubmitted(change, approves)) if isinstance(item, Refuse)]
        return found[0].error if found else None

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        self.admitted[reason] = peers

    async def next_head(self) -> None:
        """The head moves when a test moves it."""
        await self.head_moved.wait()

    def knock(
        self, invitation: Invitation, key: PrivateKey = NEWCOMER, *, by: PrivateKey | None = None
    ) -> tuple[int, str]:
        """The answer to a key that asks on an invitation."""
        code, text = decode(self.requests.take((by or key).public_key, request_on(invitation, key).encode()), 2**12)
        return code, text
