"""Open requests: changes of the members and their rules that are proposed and not decided, as running nodes tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedchain.chain.membership.change import ChangeKind
from fedchain.node.membership.account import PURPOSES
from fedchain.web.chains import Chain


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A change that is proposed."""

    hash: str
    """Its identity, in hexadecimal."""
    kind: str
    """join, leave, remove, back, rekey, recover, away or amend."""
    number: int | None
    """Place of the member that it is about; None if it joins, and of an amendment."""
    address: str
    """Address of that member, or ``parameters``."""
    key: str
    """Address of the key that the member would have; empty if it keeps its own."""
    text: str
    """A name, a reason, or the values."""
    until: int
    """Last height whose block may count it."""
    required: int
    """Approvals that it takes."""
    approved: tuple[str, ...]
    """Addresses of the members that approve of it."""
    missing: tuple[str, ...]
    """Addresses of those that could, and do not yet; none if it takes no approval."""

    @property
    def purpose(self) -> str:
        """The fate of its member in words."""
        return PURPOSES[ChangeKind[self.kind.upper()]]

    @property
    def is_complete(self) -> bool:
        """Whether a block that has room for it may count it."""
        return len(self.approved) >= self.required


def open_requests(chain: Chain) -> tuple[OpenRequest, ...]:
    """The requests that the nodes furthest ahead know of, the one that ends first first.

    Each node has the approvals that reached it; together they have those that any of them has.
    """
    told = [holder.requests for holder in chain.holders if holder.requests is not None]
    highest = max((answer["height"] for answer in told), default=0)
    found = dict[str, OpenRequest]()
    for answer in told:
        for item in (*answer["changes"], *answer["requests"]) if answer["height"] == highest else ():
            request = _read(item)
            found[request.hash] = _joined(found.get(request.hash, request), request)
    return tuple(sorted(found.values(), key=lambda request: (request.until, request.hash)))


def _read(item: Mapping[str, Any]) -> OpenRequest:
    names = "hash", "kind", "number", "address", "key", "text", "until", "required"
    return OpenRequest(
        **{name: item[name] for name in names}, approved=tuple(item["approved"]), missing=tuple(item["missing"])
    )


def _joined(one: OpenRequest, other: OpenRequest) -> OpenRequest:
    approved = tuple(dict.fromkeys((*one.approved, *other.approved)))
    missing = tuple(name for name in one.missing if name not in approved)
    return replace(one, approved=approved, missing=missing)
