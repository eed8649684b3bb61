"""Finding peers: where members can be reached, when to dial each, and a small exchange of addresses.

Bootstrap addresses are always dialled again. Other members' addresses are learned from the members themselves and from
their neighbours, and dialled while fewer than ``Limits.peers_wanted`` are connected. A false address costs only an
attempt: the handshake shows whose key is behind it. Known addresses are kept in a file, so that a peer finds the others
again without those that it was started from.
"""

import json
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from multiaddr import Multiaddr

from fedchain.chain.encoding import decode, encode, expect_record
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.durable import write_file
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import ADDRESS_FILE, read_found
from fedchain.network.limits import Limits
from fedchain.network.membership import Membership
from fedchain.network.ports import ListenError
from fedchain.network.saving import Save, save_now

ADDRESSES_PER_PEER = 4
"""Addresses remembered of one member."""

ADDRESS_SIZE_MAX = 128
"""Characters of an address."""

ENTRIES_MAX = 16
"""Members whose addresses are sent at a time."""

VERSION_SIZE_MAX = 32
"""Characters of a program's version."""

EXCHANGE_SIZE_MAX = 2**15
"""Bytes of a question or an answer."""

FILE_SIZE_PER_MEMBER_MAX = 2**12
"""Bytes of the saved addresses for each member; a larger one was not written by us."""

Entry = tuple[PublicKey, list[str]]
"""A member and where it may be reached."""


NO_PORT = "nobody can dial port 0"
"""The fault of such an address; to listen on any free port, it is right."""


class InvalidBootstrap(Exception):
    """An address to start from cannot be used; the message names it."""


def parse_bootstrap(text: str, members: Collection[PublicKey] | None) -> tuple[PublicKey, str]:
    """Split ``/ip4/…/tcp/…/p2p/12D3KooW…`` into a member and its address.

    Raises:
        InvalidBootstrap: not such an address, or nobody's in ``members``, if these are known.
    """
    place, marker, name = text.rpartition("/p2p/")
    try:
        peer = public_key_from_address(name)
    except InvalidAddress as error:
        raise InvalidBootstrap(f"bootstrap address {text!r} does not end with /p2p/ and a peer id: {error}") from None
    if not marker or not is_address(place):
        why = NO_PORT if place.endswith("/tcp/0") else "it is not of the form /ip4/…/tcp/…/p2p/…"
        raise InvalidBootstrap(f"bootstrap address {text!r}: {why}")
    if members is not None and peer not in members:
        raise InvalidBootstrap(f"bootstrap address {text!r}: {name} is not a member")
    return peer, place


def check_announced(places: Iterable[str]) -> None:
    """Raise ListenError, which names it, for the first of ``places`` that nobody could dial."""
    if wrong := [place for place in places if not is_address(place)]:
        why = NO_PORT if wrong[0].endswith("/tcp/0") else "it is not of the form /ip4/…/tcp/…"
        raise ListenError(f"{wrong[0]!r} cannot be announced: {why}")


def is_address(text: str) -> bool:
    """Whether ``text`` is a TCP address that can be dialled, as it is usually written."""
    if len(text) > ADDRESS_SIZE_MAX:
        return False
    try:
        address = Multiaddr(text)
        names, spelling = [protocol.name for protocol in address.protocols()], str(address)
    except Exception:  # the library raises whatever its parsers do
        return False
    # It also reads other spellings, such as two slashes; one place shall have one name.
    is_host_and_port = len(names) == 2 and names[0] in ("ip4", "ip6", "dns", "dns4", "dns6") and names[1] == "tcp"
    return is_host_and_port and spelling == text and not text.endswith("/tcp/0")


def seen_from(place: str, host: str) -> str:
    """An address of ``host`` as its neighbour sees it, for a peer that listens everywhere does not know it.

    Empty if the neighbour does not see it either: it listens by IPv4, and is connected by IPv6. One that listens on all
    addresses of IPv6 has those of IPv4, too.
    """
    kind = "ip6" if ":" in host else "ip4"
    for everywhere, kinds in (("/ip4/0.0.0.0/", ["ip4"]), ("/ip6/::/", ["ip4", "ip6"])):
        if place.startswith(everywhere):
            return f"/{kind}/{host}/{place.removeprefix(everywhere)}" if host and kind in kinds else ""
    return place


@dataclass(slots=True)
class _Contact:
    """Addresses of a member, and the attempts to reach it."""

    fixed: list[str] = field(default_factory=list)
    """From the bootstrap list."""
    own: list[str] = field(default_factory=list)
    """From the member itself."""
    told: list[str] = field(default_factory=list)
    """From its neighbours."""
    failures: int = 0
    """Failed attempts in a row."""
    due_s: float = 0.0
    """When to try next."""

    @property
    def places(self) -> list[str]:
        """All of them, each once."""
        return [*dict.fromkeys([*self.fixed, *self.own, *self.told])]


class AddressBook:
    """Where members are, and which of them to dial next. Bounded by the number of members.

    Args:
        own_key: our own key.
        members: those that may connect now.
        limits: of numbers and times.
        folder: where addresses are kept; None: they end with the process.
        save: has the file written.
    """

    def __init__(
        self,
        own_key: PublicKey,
        members: Membership,
        limits: Limits,
        folder: Path | None = None,
        save: Save = save_now,
    ) -> None:
        self._own_key, self._members, self._limits = own_key, members, limits
        self._contacts: dict[PublicKey, _Contact] = {}  # of members that were heard of
        self._later: dict[PublicKey, _Contact] = {}  # of our operator's and saved ones that are no members yet
        self._random = random.Random()  # spreads attempts over time; nothing depends on it
        self._path, self._write = folder / ADDRESS_FILE if folder is not None else None, save
        self._load()
        self._saved = self._known()

    def add_fixed(self, peer: PublicKey, place: str) -> None:
        """Remember a bootstrap address, also one of a member that we do not know of yet."""
        contact = self._contact(peer)
        if contact is None and peer != self._own_key:
            contact = self._later.setdefault(peer, _Contact())
        if contact is not None and place not in contact.fixed:
            contact.fixed.append(place)

    def adopt(self, peer: PublicKey) -> None:
        """A peer is a member now: it can be dialled where our operator or an earlier run knew it."""
        if (known := self._later.pop(peer, None)) is not None and (contact := self._contact(peer)) is not None:
            contact.fixed = [*contact.fixed, *(place for place in known.fixed if place not in contact.fixed)]
            self.add_told(peer, known.told, by_itself=False)

    def add_told(self, peer: PublicKey, addresses: Iterable[str], *, by_itself: bool) -> None:
        """Learn addresses. A member's own word replaces hearsay, and hearsay never replaces its word.

        Where it cannot be reached at its word, it may have moved, and hearsay is tried beside it.
        """
        contact = self._contact(peer)
        if contact is None or (contact.own and not contact.failures and not by_itself):
            return
        usable = [*dict.fromkeys(place for place in addresses if is_address(place))][:ADDRESSES_PER_PEER]
        if not by_itself:
            # The newest stay: old saved addresses must not hide the member's present ones.
            new = [place for place in usable if place not in (*contact.own, *contact.told)]
            contact.told = [*contact.told, *new][-ADDRESSES_PER_PEER:]
        elif usable:  # a member that names no place leaves it to hearsay
            contact.own, contact.told = usable, []

    def lacking(self, connected: Collection[PublicKey]) -> int:
        """How many more members are wanted. Guests do not count: those of a liar would keep us from all others."""
        return max(0, self._limits.peers_wanted - sum(peer not in self._members.guests for peer in connected))

    def due(self, connected: Collection[PublicKey], now_s: float) -> list[Entry]:
        """Return the peers to dial now, each with all its known places, in another order after each failure."""
        room = self.lacking(connected)
        waiting = [peer for peer in self._contacts if peer not in connected and now_s >= self._contacts[peer].due_s]
        self._random.shuffle(waiting)
        chosen = [peer for peer in waiting if self._contacts[peer].fixed]
        chosen += [peer for peer in waiting if not self._contacts[peer].fixed and self._contacts[peer].places][:room]
        return [(peer, self._places(self._contacts[peer])) for peer in chosen]

    def on_failure(self, peer: PublicKey, begun_s: float) -> float:
        """An attempt that began at ``begun_s`` has failed; when to try next.

        The pause counts from the beginning: an attempt may take its time to fail, and a link that heals meanwhile
        shall not wait for both.
        """
        contact = self._contact(peer) or _Contact()  # a member no more since the attempt began
        pause_s = min(self._limits.redial_max_s, self._limits.redial_min_s * 2.0 ** min(contact.failures, 16))
        contact.failures += 1
        contact.due_s = begun_s + pause_s * self._random.uniform(0.75, 1.0)
        return contact.due_s

    def failures(self, peer: PublicKey) -> int:
        """How many attempts have failed since the member was reached last."""
        contact = self._contacts.get(peer)
        return contact.failures if contact is not None else 0

    def on_connected(self, peer: PublicKey) -> None:
        """The member is reached."""
        if (contact := self._contact(peer)) is not None:
            contact.failures = 0

    def on_disconnected(self, peer: PublicKey, now_s: float) -> None:
        """The member is gone; it is not dialled at once, lest both sides do."""
        if (contact := self._contact(peer)) is not None:
            contact.due_s = now_s + self._limits.redial_min_s * self._random.uniform(0.25, 1.0)

    def hurry(self, peer: PublicKey) -> None:
        """Dial the member at the next opportunity, whatever failed before."""
        if (contact := self._contact(peer)) is not None:
            contact.failures, contact.due_s = 0, 0.0

    def forget(self, peer: PublicKey) -> None:
        """Drop the addresses of one that is a member no more."""
        self._contacts.pop(peer, None)

    def known(self) -> dict[PublicKey, list[str]]:
        """Members with addresses."""
        return {peer: list(places) for peer, places in self._known().items()}

    def sample(self, asker: PublicKey) -> list[Entry]:
        """Up to ``ENTRIES_MAX`` members with addresses, for ``asker``."""
        known = [(peer, places) for peer, places in self._known().items() if peer != asker]
        return self._random.sample(known, min(ENTRIES_MAX, len(known)))

    def save(self) -> None:
        """Have the known addresses written down, if they have changed since they were."""
        known = self._known()
        if self._path is not None and known != self._saved:
            self._write("known addresses", partial(self._write_down, self._path, known))

    def _contact(self, peer: PublicKey) -> _Contact | None:
        """The record of a member's addresses; None for us, and for a peer that is no member now."""
        if peer == self._own_key or peer not in self._members:
            return None
        return self._contacts.setdefault(peer, _Contact())

    def _known(self) -> dict[PublicKey, list[str]]:
        """Members with addresses."""
        texts = {peer: dict.fromkeys([*c.own, *c.told, *c.fixed]) for peer, c in self._contacts.items()}
        known = {peer: [*places][:ADDRESSES_PER_PEER] for peer, places in texts.items()}
        return {peer: places for peer, places in known.items() if places}

    def _write_down(self, path: Path, known: dict[PublicKey, list[str]]) -> None:
        """Write addresses, in any thread. Raises OSError."""
        entries = {address(peer): places for peer, places in known.items()}
        write_file(path, json.dumps(entries, indent=1, ensure_ascii=False).encode())
        self._saved = known

    def _load(self) -> None:
        """Take saved addresses as hearsay; a damaged file is ignored, and does not keep us from starting."""
        size_max = FILE_SIZE_PER_MEMBER_MAX * (1 + len(self._members))
        try:
            if self._path is None or self._path.stat().st_size > size_max:
                return
            saved = json.loads(read_found(self._path).decode())
            entries = [(public_key_from_address(name), list(map(str, places))) for name, places in saved.items()]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, InvalidAddress):
            return
        for peer, places in entries:
            if peer not in self._members and peer != self._own_key:
                self._later.setdefault(peer, _Contact()).told = [item for item in places if is_address(item)]
            self.add_told(peer, places, by_itself=False)

    def _places(self, contact: _Contact) -> list[str]:
        places = contact.places
        first = contact.failures % len(places)
        return places[first:] + places[:first]


def encode_exchange(version: str, entries: Iterable[Entry]) -> bytes:
    """Encode what one peer tells another: its program's version, and where members are."""
    return encode([version, [[peer, addresses] for peer, addresses in entries]])


def decode_exchange(data: bytes) -> tuple[str, list[Entry]]:
    """Read :func:`encode_exchange`'s bytes; raises InvalidEncoding."""
    version, items = expect_record(decode(data, EXCHANGE_SIZE_MAX), "addresses", (str, list))
    if len(version) > VERSION_SIZE_MAX or not (version.isascii() and version.isprintable()):
        raise InvalidEncoding("version", f"at most {VERSION_SIZE_MAX} printable characters expected")
    if len(items) > ENTRIES_MAX:
        raise InvalidEncoding("addresses", f"{len(items)} entries found, at most {ENTRIES_MAX} are allowed")
    entries = []
    for item in items:
        peer, addresses = expect_record(item, "address entry", (bytes, list))
        if len(addresses) > ADDRESSES_PER_PEER:
            raise InvalidEncoding("addresses", f"{len(addresses)} found, at most {ADDRESSES_PER_PEER} are allowed")
        entries.append((peer, expect_record(addresses, "addresses", [str] * len(addresses))))
    return version, entries
