"""A model's passport: one JSON document that proves, without the chain, that a file holds what a federation made final.

It is an in-toto Statement (https://in-toto.io/Statement/v1), as OpenSSF's model signing uses it: the file is its
subject, named by its digest. Its predicate takes the place of a signature: the founding document, the light block that
made the knowledge final, and the pieces of the knowledge that are not the file's tensors. Together with these tensors
they are the bytes whose hash the block's header holds. Nothing here needs torch, a chain or a connection.

Each part of the document is checked against another one. The checksum finds damage in what nothing else holds, such as
the version of the tool; a forger would compute it anew.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import safetensors

import fedchain
from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.bisection import bisect
from fedchain.chain.light.light_block import LightBlock, light_block_size_max
from fedchain.chain.light.verification import Trusted, trust_genesis, verify_adjacent, verify_skipping
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.state import votes_required
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import is_valid_signature
from fedchain.files.layout import is_device, is_file_name
from fedchain.files.spool import read_in_place
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.models.model_info import read_model_info
from fedchain.learning.models.parameters import BUFFER_PREFIX, PREFIX
from fedchain.learning.payload.document import Buffer, Entry, read_entry, read_number, read_text
from fedchain.learning.payload.tensor_file import DTYPES, FileTensor, data_begin, read_tensors
from fedchain.learning.worker.model_origin import HEADER, read_metadata, read_origin
from fedchain.simulator.trained.joined import Joined
from fedchain.wording import bearable, counted, printable

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:fedchain:model-passport:v1"

ENCODING = "fedchain/2 knowledge"
"""Name of the encoding that the pieces make: an array of [phase, round, document], the knowledge itself first; a
document is a byte string that holds an array of [name, dtype, shape, data], msgpack in its shortest form, data
little-endian in C order."""

SUFFIX = ".passport.json"
"""End of a passport's name, behind the name of the model's file."""

PASSPORT_SIZE_MAX = 2**29
"""Most bytes of a passport that is read: knowledge beside the model, such as SCAFFOLD's, stands in it."""

Json = dict[str, Any]
Kind = TypeVar("Kind")


class InvalidPassport(ChainError):
    """A passport that does not prove what it says. The message begins with the part that is at fault.

    Args:
        part: name of that part.
        message: what is wrong with it.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part


@dataclass(frozen=True, slots=True)
class PassportReport:
    """The facts that a passport proves."""

    name: str
    """Name of the federation."""
    chain_id: Hash
    """32 bytes: hash of the founding document, which is believed."""
    members: int
    """Number of its members; of those that counted at this height, where members may change."""
    liars_max: int
    """Most of them that may lie."""
    members_change: bool
    """Whether members may change: then as few lie in each set on the way, those that have left included."""
    file: str
    """Name of the model's file."""
    tensors: int
    """Tensors in it."""
    numbers: int
    """Numbers in these."""
    height: int
    """Height of the block."""
    round: int
    """Round of the block."""
    phase: str
    """Phase that left the model behind."""
    made_in: int
    """Round of that phase: an earlier one, if no posts changed the model since."""
    block_hash: Hash
    """32 bytes: hash of the block."""
    votes: int
    """Votes for it in its certificate."""
    electors: int
    """Members that decided its height."""
    required: int
    """Votes that were needed."""
    knowledge_root: Hash
    """32 bytes: hash of the knowledge that the tensors are part of."""
    tool: str
    """Version of the program that wrote the passport, as it says itself."""
    says_more: bool
    """Whether the file's header says more about the model, such as accuracies."""


# --- writing


def write_passport(explorer: Explorer, round_number: int | None, name: str, file: bytes) -> bytes:
    """The passport of the model that all members share after a round.

    Args:
        explorer: the chain.
        round_number: the round; by default the newest finished one.
        name: name of the model's file.
        file: its bytes, whose tensors are the knowledge's.

    Raises:
        NotFound: the chain does not keep the knowledge, or a block that the proof needs.
        InvalidPassport: the file does not hold what the chain does.
    """
    genesis = explorer.genesis
    header, knowledge = explorer.kept.left_behind(round_number)
    statement: Json = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256(file).hex()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "tool": {"name": "fedchain", "version": fedchain.__version__},
            "federation": {
                "name": genesis.name,
                "chain_id": genesis.chain_id.hex(),
                "genesis": _to_text(genesis.encode()),
            },
            "block": {
                "height": header.height,
                "round": header.round,
                "hash": header.hash.hex(),
                "light_blocks": [_to_text(block.encode()) for block in _proof(explorer, header.height)],
            },
            "knowledge": {
                "digest": {"sha256": header.knowledge_root.hex()},
                "encoding": ENCODING,
                "tensor_data": {"sha256": _data_hash(file)},
                "pieces": [*_cut(knowledge, _read_tensors(file))],
            },
        },
    }
    statement["predicate"]["checksum"] = {"sha256": _checksum(statement)}
    data = to_json(statement)
    check_passport(data, name, file)  # nothing is handed out that would be refused
    return data


def to_json(statement: Json) -> bytes:
    """The one form of a passport's document."""
    return (json.dumps(statement, indent=1, ensure_ascii=True) + "\n").encode()


def _proof(explorer: Explorer, height: int) -> Sequence[LightBlock]:
    """Light blocks that lead from the founding document to a height, as few as possible."""
    genesis, start = explorer.genesis, explorer.held.start
    try:
        return bisect(genesis, trust_genesis(genesis), explorer.light, height, is_valid_signature).path
    except NotFound:
        if start == 1:
            raise
        raise NotFound(f"the proof needs earlier blocks; {start} is the first one that is held") from None


def _cut(knowledge: bytes, tensors: Mapping[str, FileTensor]) -> Iterator[Json]:
    """Knowledge as pieces: data of the file's tensors by name, and the bytes between."""
    begin = 0
    for entry, position in _model_entries(Joined([knowledge])):
        if entry.data.nbytes and _own_name(entry.name) in tensors:
            yield {"bytes": _to_text(knowledge[begin:position])}
            yield {"tensor": _own_name(entry.name)}
            begin = position + entry.data.nbytes
    yield {"bytes": _to_text(knowledge[begin:])}


# --- checking


def read_passport(path: Path) -> PassportReport:
    """Check a passport, and the model's file beside it, whose name it holds.

    Args:
        path: the passport; or the model's file, beside which the passport stands.

    Raises:
        InvalidPassport: a part of it, or of the model, is not what the others say.
        OSError: the passport cannot be read.
    """
    is_model = not path.name.endswith(SUFFIX)
    beside = path.parent / (path.name + SUFFIX) if is_model else path
    _expect(not is_device(beside), "passport", "it is no file")
    if beside.stat().st_size > PASSPORT_SIZE_MAX:
        size = beside.stat().st_size
        raise InvalidPassport("passport", f"{size} bytes found, at most {PASSPORT_SIZE_MAX} are read")
    data = beside.read_bytes()
    name = _subject(_parse(data))["name"]
    if type(name) is not str or not is_file_name(name):
        raise InvalidPassport("subject", "its name is no name of a file")
    _expect(
        name == path.name or not is_model,
        "subject",
        f"the passport is of {printable(name)}, not of {printable(path.name)}",
    )
    model = path.with_name(name)
    try:
        _expect(not is_device(model), "subject", f"{printable(name)} beside the passport is no file")
        file = read_in_place(model)
    except (OSError, ValueError) as error:  # no file system has some names
        why = getattr(error, "strerror", None) or "no such file"
        raise InvalidPassport("subject", f"{printable(name)} is not beside the passport: {why}") from None
    return check_passport(data, name, file)


def check_passport(data: bytes, name: str, file: bytes) -> PassportReport:
    """Check a passport against the bytes of a model's file of this name. Raises InvalidPassport."""
    statement = _parse(data)
    subject, predicate = _subject(statement), _part(statement, "predicate", dict)
    for key, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        _expect(statement[key] == expected, key, f"{printable(str(statement[key]))} found, {expected} expected")
    _expect(subject["name"] == name, "subject", f"its name is not {printable(name)}")
    digest = {"sha256": sha256(file).hex()}
    _expect(subject["digest"] == digest, "model file", f"its SHA-256 is {digest['sha256']}, the subject's is another")
    tool, federation, block, left, checksum = (
        _part(predicate, key, dict) for key in ("tool", "federation", "block", "knowledge", "checksum")
    )
    genesis = _check_federation(federation)
    trusted, light = _check_block(genesis, block)
    knowledge, tensors = _check_knowledge(light, left, file)
    entries = [entry for entry, _ in _model_entries(knowledge)]
    _check_tensors(entries, tensors, _tied(genesis))
    phase, made_in, _ = next(_parts(knowledge))
    says_more = _check_origin(genesis, light.header.round, file)
    version = _part(tool, "version", str)
    _expect(tool == {"name": "fedchain", "version": version}, "tool", "a name and a version are expected")
    found = _checksum({**statement, "predicate": {key: predicate[key] for key in predicate if key != "checksum"}})
    _expect(checksum == {"sha256": found}, "checksum", "the document, its tool above all, is not as it was written")
    return PassportReport(
        name=genesis.name,
        chain_id=genesis.chain_id,
        members=len(trusted.members),
        liars_max=genesis.fault_model.faulty(len(trusted.members)),
        members_change=genesis.version >= CHANGES_VERSION,
        file=name,
        tensors=len(tensors),
        numbers=sum(tensor.numbers for tensor in tensors.values()),
        height=light.header.height,
        round=light.header.round,
        phase=phase,
        made_in=made_in,
        block_hash=light.header.hash,
        votes=len(light.certificate.votes),
        electors=len(trusted.deciders),
        required=votes_required(genesis, trusted.deciders),
        knowledge_root=light.header.knowledge_root,
        tool=version,
        says_more=says_more,
    )


def tell(report: PassportReport) -> tuple[str, str, str, str, str]:
    """Five lines that say whose model it is, what was verified, and what was believed."""
    r = report
    compare = "compare it with one from elsewhere"
    lie = bearable(r.liars_max, r.members, earlier=r.members_change)
    more = "; all else that the file's header says" if r.says_more else ""
    return (
        f"federation  {printable(r.name)}, {counted(r.members, 'member')}; chain id {r.chain_id.hex()}: {compare}",
        f"model       {printable(r.file)}, {counted(r.tensors, 'tensor')} with {r.numbers:,} numbers: "
        f"what round {r.round} left behind (by {printable(r.phase)} of round {r.made_in})",
        f"verified    block {r.height}, {r.block_hash.hex()}: {r.votes} of {r.electors} electors signed it, "
        f"{r.required} were needed",
        f"verified    each tensor, byte for byte: the header holds the knowledge's hash {r.knowledge_root.hex()}",
        f"believed    the founding document; that {lie}; that fedchain {printable(r.tool)} wrote the passport{more}",
    )


def _check_federation(federation: Json) -> Genesis:
    data = _from_text(federation, "genesis", "founding document")
    _expect_keys(federation, ("name", "chain_id", "genesis"), "federation")
    found = sha256(data).hex()
    _expect(federation["chain_id"] == found, "founding document", f"its hash is {found}, the chain id is another")
    try:
        genesis = Genesis.decode(data)
    except ChainError as error:
        raise InvalidPassport("founding document", str(error)) from None
    _expect(federation["name"] == genesis.name, "federation", f"its name in the document is {printable(genesis.name)}")
    return genesis


def _check_block(genesis: Genesis, block: Json) -> tuple[Trusted, LightBlock]:
    """The block, and the trust in it."""
    _expect_keys(block, ("height", "round", "hash", "light_blocks"), "block")
    texts = _part(block, "light_blocks", list)
    _expect(bool(texts), "block", "there is none")
    trusted, light = trust_genesis(genesis), None
    try:
        for place, _ in enumerate(texts):
            data = _from_text(texts, place, "block")
            light = LightBlock.decode(data, light_block_size_max(genesis))
            verify = verify_adjacent if light.is_alone else verify_skipping
            trusted = verify(genesis, trusted, light, is_valid_signature)
    except ChainError as error:
        if isinstance(error, InvalidPassport):
            raise
        raise InvalidPassport("block", str(error)) from None
    assert light is not None
    said = {name: block[name] for name in ("height", "round", "hash")}
    header = light.header
    proven = {"height": header.height, "round": header.round, "hash": header.hash.hex()}
    for name in proven:
        same = type(said[name]) is type(proven[name]) and said[name] == proven[name]
        _expect(same, "block", f"its {name} is {proven[name]}, the document says otherwise")
    phases = genesis.phases_of(header.round)
    is_last = header.phase + 1 == len(phases)
    _expect(
        is_last,
        "block",
        f"it closes phase {header.phase}, and the last of {len(phases)} leaves behind what its round does",
    )
    return trusted, light


# --- knowledge and tensors


def _read_tensors(file: bytes) -> dict[str, FileTensor]:
    try:
        return read_tensors(file)
    except safetensors.SafetensorError as error:
        raise InvalidPassport("model file", f"it is no safetensors file: {error}") from None


def _data_hash(file: bytes) -> str:
    """SHA-256 of the tensors' data in a sound safetensors file: all behind its header."""
    return hashlib.sha256(memoryview(file)[data_begin(file) :]).hexdigest()


def _check_knowledge(light: LightBlock, left: Json, file: bytes) -> tuple[Joined, dict[str, FileTensor]]:
    """The knowledge that pieces and tensors make, and the tensors."""
    _expect_keys(left, ("digest", "encoding", "tensor_data", "pieces"), "knowledge")
    _expect(left["encoding"] == ENCODING, "knowledge", f"its encoding is not {ENCODING}")
    root = light.header.knowledge_root
    _expect(left["digest"] == {"sha256": root.hex()}, "knowledge", f"its hash in the block's header is {root.hex()}")
    tensors, data_hash = _read_tensors(file), _data_hash(file)
    _expect(left["tensor_data"] == {"sha256": data_hash}, "tensors", f"their data hash to {data_hash}")
    pieces = _part(left, "pieces", list)
    knowledge = Joined([_piece(pieces, place, tensors) for place, _ in enumerate(pieces)])
    hasher = hashlib.sha256()
    for piece in knowledge.pieces:
        hasher.update(piece)
    found = hasher.digest()
    _expect(found == root, "knowledge", f"pieces and tensors have the hash {found.hex()}, the block's is {root.hex()}")
    return knowledge, tensors


def _piece(pieces: Sequence[Any], place: int, tensors: Mapping[str, FileTensor]) -> Buffer:
    piece = pieces[place]
    if type(piece) is dict and piece.keys() == {"bytes"}:
        return _from_text(piece, "bytes", "knowledge")
    if type(piece) is dict and piece.keys() == {"tensor"} and type(piece["tensor"]) is str:
        name = piece["tensor"]
        _expect(name in tensors, "knowledge", f"piece {place} is tensor {printable(name)}, which the file lacks")
        return tensors[name].data
    raise InvalidPassport("knowledge", f"piece {place} is neither bytes nor a tensor")


def _tied(genesis: Genesis) -> Mapping[str, str]:
    """Further names of the model's tensors, each with the name that the knowledge has."""
    shapes = dict(genesis.learning).get("shapes")
    try:
        return {} if shapes is None else dict(read_model_info(json.loads(shapes)).tied)
    except (ConfigurationError, TypeError, ValueError, RecursionError) as error:
        raise InvalidPassport("founding document", f"its shapes cannot be read: {printable(str(error))}") from None


def _check_tensors(entries: Sequence[Entry], tensors: Mapping[str, FileTensor], tied: Mapping[str, str]) -> None:
    """Check that the file holds the model that the knowledge holds, under the same names, and nothing else."""
    named = {_own_name(entry.name): entry for entry in entries}
    named |= {name: named[first] for name, first in tied.items() if first in named}
    for name in sorted({*named, *tensors}):
        if name not in named or name not in tensors:
            where = "the knowledge" if name not in named else "the file"
            raise InvalidPassport("tensors", f"{printable(name)} is not in {where}")
        entry, tensor = named[name], tensors[name]
        same = (DTYPES.get(entry.dtype), entry.shape) == (tensor.dtype, tensor.shape) and entry.data == tensor.data
        _expect(same, "tensors", f"{printable(name)} is not the knowledge's")


def _check_origin(genesis: Genesis, round_number: int, file: bytes) -> bool:
    """Check what the file's header says of the federation; whether it says more than the passport proves."""
    origin, texts = read_origin(file), read_metadata(file)
    if origin is None:
        _expect(HEADER not in texts, "model file", "its header says where it is from in another form than ours")
        return bool(texts)
    said, proven = (origin.chain_id, origin.round, origin.member), (genesis.chain_id.hex(), round_number, None)
    _expect(said == proven, "model file", "its header names another federation, round or member")
    return True


def _parts(joined: Joined) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Phase and round of each part of knowledge, and where its document begins and ends."""
    knowledge = cast("memoryview", joined)
    try:
        count, position = read_number(knowledge, 0, "array")
        for _ in range(count):
            fields, position = read_number(knowledge, position, "array")
            _expect(fields == 3, "knowledge", f"a part has {fields} fields")
            phase, position = read_text(knowledge, position)
            number, position = read_number(knowledge, position, "integer")
            size, position = read_number(knowledge, position, "bytes")
            yield phase, number, (position, position + size)
            position += size
    except InvalidPayload as error:
        raise InvalidPassport("knowledge", str(error)) from None


def _model_entries(joined: Joined) -> list[tuple[Entry, int]]:
    """The model's tensors in the first part, which is the knowledge itself, and where their data begin."""
    first, found = next(_parts(joined), None), []
    if first is None:
        raise InvalidPassport("knowledge", "it is empty")
    begin, end = first[2]
    knowledge = cast("memoryview", joined)
    try:
        count, position = read_number(knowledge, begin, "array")
        for _ in range(count):
            entry, position = read_entry(knowledge, position)
            if entry.name.startswith((PREFIX, BUFFER_PREFIX)):
                found.append((entry, position - entry.data.nbytes))
    except InvalidPayload as error:
        raise InvalidPassport("knowledge", str(error)) from None
    _expect(position == end, "knowledge", f"the document of {first[0]} ends at byte {position}, {end} expected")
    return found


def _own_name(name: str) -> str:
    """The module's own name of a tensor of the knowledge."""
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else name.removeprefix(BUFFER_PREFIX)


# --- JSON


def _parse(data: bytes) -> Json:
    """The document, which has one form."""
    try:
        statement = json.loads(data)
        is_only_form = to_json(statement) == data
    except (ValueError, RecursionError):
        raise InvalidPassport("passport", "it is no JSON document") from None
    _expect(type(statement) is dict, "passport", "it is no statement")
    _expect_keys(statement, ("_type", "subject", "predicateType", "predicate"), "passport")
    predicate = _part(statement, "predicate", dict)
    _expect_keys(predicate, ("tool", "federation", "block", "knowledge", "checksum"), "passport")
    _expect(is_only_form, "passport", "it is not written as passports are")
    found: Json = statement
    return found


def _subject(statement: Json) -> Json:
    subjects = _part(statement, "subject", list)
    _expect(len(subjects) == 1 and type(subjects[0]) is dict, "subject", "it is not one file")
    _expect_keys(subjects[0], ("name", "digest"), "subject")
    found: Json = subjects[0]
    return found


def _checksum(statement: Json) -> str:
    return sha256(to_json(statement)).hex()


def _part(of: Json, name: str, kind: type[Kind]) -> Kind:
    found = of.get(name)
    if type(found) is not kind:
        raise InvalidPassport("passport", f"its {name} is missing, or of another kind")
    return found


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_text(of: Any, name: Any, part: str) -> bytes:
    """Bytes in base64, of which only the one form is read."""
    text = of[name] if isinstance(of, list) else of.get(name)
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        data = None
    if data is None or _to_text(data) != text:
        raise InvalidPassport(part, "its bytes are not in base64")
    return data


def _expect_keys(of: Json, names: Sequence[str], part: str) -> None:
    if [*of] != [*names]:
        raise InvalidPassport(part, f"its fields are not {', '.join(names)}")


def _expect(condition: bool, part: str, message: str) -> None:
    if not condition:
        raise InvalidPassport(part, message)
