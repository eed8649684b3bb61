"""A passport proves where a model is from without the chain, and a flipped byte anywhere is refused by its part."""

import base64
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.knowledge import Occasion
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import sha256
from fedchain.files.spool import read_in_place
from fedchain.learning.knowledge import write_knowledge
from fedchain.learning.models.model_info import ModelInfo, write_model_info
from fedchain.learning.payload.codec import document
from fedchain.learning.worker.model_origin import Origin, read_metadata, write_origin
from fedchain.simulator.trained.passport import (
    SUFFIX,
    InvalidPassport,
    check_passport,
    read_passport,
    tell,
    to_json,
    write_passport,
)
from tests.support.chain.builders import UPDATE, ChainBuilder, SumRules, genesis
from tests.support.chain.changes import joining, living_genesis, own
from tests.support.chain.explored import finals, write

NAME = "model.safetensors"
ROUNDS = 3

STATE = {
    "fc.bias": np.array([0.5, -1.0], np.float32),
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fc.twin": np.arange(6, 12, dtype=np.float32).reshape(2, 3),
    "norm.count": np.array(7.0, np.float32),
}


class ModelRules(SumRules):
    """Rules of a method whose knowledge is the same model in each round, with something beside it."""

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[bytes, bytes]]) -> bytes:
        model = {("buffer." if "norm" in name else "model.") + name: value for name, value in STATE.items()}
        beside = document({"other": np.full(3, occasion.round, np.float32)})
        model_left = document({**model, "control": np.full(4, occasion.round, np.float32)})
        return write_knowledge([("update", occasion.round, model_left), ("beside", occasion.round, beside)])


@dataclass(frozen=True)
class Written:
    """A passport and its model."""

    data: bytes
    file: bytes
    document: Genesis
    chain: ChainBuilder


def file_of(document: Genesis, state: dict[str, Any], **changes: Any) -> bytes:
    values: dict[str, Any] = {"chain_id": document.chain_id.hex(), "method": "sum", "dataset": "own", "model": "own"}
    origin = Origin(**(values | {"round": ROUNDS, "accuracy": 0.5} | changes))
    return safetensors.numpy.save(state, write_origin(origin))


def written(folder: Path, document: Genesis, state: dict[str, Any] = STATE, **changes: Any) -> Written:
    chain = ChainBuilder(document, ModelRules())
    chain.extend_many(ROUNDS)
    file = file_of(document, state, **changes)
    with Store.create(folder / "chain", document) as store:
        write(store, chain)
        return Written(write_passport(Explorer(store), None, NAME, file), file, document, chain)


@pytest.fixture(scope="module")
def passport(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written(tmp_path_factory.mktemp("chain"), genesis(4))


def test_what_an_earlier_phase_leaves_is_not_what_its_round_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = genesis(4, phases=(UPDATE, replace(UPDATE, name="second")))
    written(tmp_path / "whole", document, round=1)
    chain, file = ChainBuilder(document, ModelRules()), file_of(document, STATE, round=1)
    first, _ = chain.extend_many(2)
    with Store.create(tmp_path / "chain", document) as store:
        write(store, chain)
        explorer = Explorer(store)
        _, knowledge = explorer.kept.left_behind()
        monkeypatch.setattr(explorer.kept, "left_behind", lambda round_number: (first.header, knowledge))
        with pytest.raises(InvalidPassport, match="it closes phase 0, and the last of 2"):
            write_passport(explorer, None, NAME, file)


def refusal(data: bytes, file: bytes) -> InvalidPassport:
    with pytest.raises(InvalidPassport) as caught:
        check_passport(data, NAME, file)
    assert str(caught.value).startswith(f"{caught.value.part}: ")
    return caught.value


def resealed(passport: Written, change: Callable[[Any], None], file: bytes | None = None) -> InvalidPassport:
    """The refusal of a passport that a forger changed, with all hashes that anybody can compute made anew."""
    file = passport.file if file is None else file
    return refusal(rewritten(passport, file, change), file)


def rewritten(passport: Written, file: bytes, change: Callable[[Any], None] = lambda predicate: None) -> bytes:
    """A passport for another file, with all hashes that anybody can compute made anew."""
    statement = json.loads(passport.data)
    predicate = statement["predicate"]
    statement["subject"][0]["digest"]["sha256"] = sha256(file).hex()
    size = int.from_bytes(file[:8], "little")
    predicate["knowledge"]["tensor_data"]["sha256"] = sha256(file[8 + size :]).hex()
    del predicate["checksum"]
    change(predicate)
    predicate["checksum"] = {"sha256": sha256(to_json(statement)).hex()}
    return to_json(statement)


# --- what holds


def test_five_lines_say_whose_model_it_is_what_was_verified_and_what_is_believed(passport: Written) -> None:
    report = check_passport(passport.data, NAME, passport.file)
    header = passport.chain.blocks[passport.chain.tip].header
    assert tell(report) == (
        f"federation  test, 4 members; chain id {passport.document.chain_id.hex()}: compare it with one from elsewhere",
        f"model       {NAME}, 4 tensors with 15 numbers: what round 3 left behind (by update of round 3)",
        f"verified    block 3, {header.hash.hex()}: 3 of 4 electors signed it, 3 were needed",
        f"verified    each tensor, byte for byte: the header holds the knowledge's hash {header.knowledge_root.hex()}",
        "believed    the founding document; that at most 1 of 4 members lie; that fedchain 0.1.0 wrote the passport; "
        "all else that the file's header says",
    )


def test_more_votes_than_were_needed_are_counted_beside_them(tmp_path: Path) -> None:
    document = genesis(4)
    chain = ChainBuilder(document, ModelRules())
    chain.extend_many(ROUNDS)
    last, all_of_them = chain.blocks[chain.tip], chain.certificate(chain.tip, document.members)
    file = file_of(document, STATE)
    with Store.create(tmp_path / "chain", document) as store:
        store.append([*finals(chain)[:-1], chain.final(last, all_of_them)])
        store.append([Contents(dict(chain.contents))])
        data = write_passport(Explorer(store), None, NAME, file)
    assert tell(check_passport(data, NAME, file))[2].endswith(": 4 of 4 electors signed it, 3 were needed")


def test_it_is_an_in_toto_statement_about_the_file(passport: Written) -> None:
    statement = json.loads(passport.data)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": NAME, "digest": {"sha256": sha256(passport.file).hex()}}]
    assert [*statement] == ["_type", "subject", "predicateType", "predicate"]
    assert len(statement["predicate"]["block"]["light_blocks"]) == 1
    named = [piece["tensor"] for piece in statement["predicate"]["knowledge"]["pieces"] if "tensor" in piece]
    assert sorted(named) == sorted(STATE), "no tensor's data stand in the passport again"
    assert len(passport.data) < 6_000


def test_the_same_model_gives_the_same_passport(passport: Written, tmp_path: Path) -> None:
    assert written(tmp_path, genesis(4)).data == passport.data


def test_a_file_of_another_program_has_less_to_believe(tmp_path: Path, passport: Written) -> None:
    file = safetensors.numpy.save(STATE)
    with Store.create(tmp_path / "chain", passport.document) as store:
        write(store, passport.chain)
        data = write_passport(Explorer(store), 2, NAME, file)
    report = check_passport(data, NAME, file)
    assert (report.round, report.height, report.says_more) == (2, 2, False)
    assert tell(report)[4].endswith("that fedchain 0.1.0 wrote the passport")


def test_where_few_members_are_drawn_it_holds_all_blocks(tmp_path: Path) -> None:
    found = written(tmp_path, genesis(10, committee_size=3))
    assert len(json.loads(found.data)["predicate"]["block"]["light_blocks"]) == ROUNDS
    report = check_passport(found.data, NAME, found.file)
    assert (report.height, report.electors, report.required) == (3, 3, 2)

    def cut(predicate: Any) -> None:
        del predicate["block"]["light_blocks"][1]

    assert "height: 3 found, 1 is trusted" in str(resealed(found, cut))


def test_where_members_change_it_is_believed_by_the_sets_in_force(tmp_path: Path) -> None:
    document = living_genesis(5, admission=Admission.SPONSORS, sponsors=1)
    chain = ChainBuilder(document, ModelRules())
    chain.extend(changes=[joining(chain, 5), own(chain, 0)])
    chain.extend_many(ROUNDS)
    file = file_of(document, STATE, round=ROUNDS + 1)
    with Store.create(tmp_path / "chain", document) as store:
        write(store, chain)
        data = write_passport(Explorer(store), None, NAME, file)
    report = check_passport(data, NAME, file)
    assert (report.height, report.members, report.electors, report.required) == (4, 5, 5, 4)
    believed = "at most 1 of 5 members lie, and as few in each earlier set, even of those that have left since; that"
    assert believed in tell(report)[-1], "the keys of the founders, who may be gone, can make another chain"
    passport = Written(data, file, document, chain)

    def forge(predicate: Any) -> None:
        block = LightBlock.decode(base64.b64decode(predicate["block"]["light_blocks"][0]), 2**16)
        assert block.members is not None
        forged = replace(block, members=genesis_state(document).member_set)
        predicate["block"]["light_blocks"] = [base64.b64encode(forged.encode()).decode()]

    assert "block: member set: " in str(resealed(passport, forge))


def test_where_older_blocks_are_needed_and_not_held_it_says_so(tmp_path: Path) -> None:
    document = genesis(10, committee_size=3)
    chain = ChainBuilder(document, ModelRules())
    chain.extend_many(ROUNDS)
    with Store.create(tmp_path / "chain", document) as store:
        write(store, chain, base=2)
        with pytest.raises(NotFound, match="the proof needs earlier blocks; 2 is the first one that is held"):
            write_passport(Explorer(store), None, NAME, file_of(document, STATE))


# --- what does not


@pytest.mark.parametrize(
    ("state", "changes", "words"),
    [
        ({**STATE, "more": STATE["fc.bias"]}, {}, "tensors: more is not in the knowledge"),
        ({name: STATE[name] for name in STATE if name != "fc.bias"}, {}, "tensors: fc.bias is not in the file"),
        (STATE | {"fc.bias": STATE["fc.bias"] * 2}, {}, "knowledge: pieces and tensors have the hash"),
        (STATE | {"fc.weight": STATE["fc.weight"].reshape(3, 2)}, {}, "tensors: fc.weight is not the knowledge's"),
        (STATE | {"fc.weight": STATE["fc.weight"].view(np.int32)}, {}, "tensors: fc.weight is not the knowledge's"),
        (STATE, {"round": 2}, "model file: its header names another federation, round or member"),
        (STATE, {"member": 1}, "model file: its header names another federation, round or member"),
        (STATE, {"chain_id": "00" * 32}, "model file: its header names another federation, round or member"),
    ],
)
def test_no_passport_is_written_for_what_the_chain_does_not_hold(
    tmp_path: Path, state: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidPassport, match=f"^{words}"):
        written(tmp_path, genesis(4), state, **changes)


def test_twins_cannot_change_places_even_if_all_hashes_are_made_anew(passport: Written) -> None:
    swapped = STATE | {"fc.weight": STATE["fc.twin"], "fc.twin": STATE["fc.weight"]}

    def swap(predicate: Any) -> None:
        for piece in predicate["knowledge"]["pieces"]:
            if piece.get("tensor") in ("fc.weight", "fc.twin"):
                piece["tensor"] = "fc.twin" if piece["tensor"] == "fc.weight" else "fc.weight"

    file = file_of(passport.document, swapped)
    assert str(resealed(passport, swap, file)) == "tensors: fc.twin is not the knowledge's"
    assert resealed(passport, lambda predicate: None, file).part == "knowledge"


def test_a_tensor_of_two_names_is_proven_by_both(tmp_path: Path) -> None:
    info = ModelInfo(
        (*((name, value.shape) for name, value in STATE.items()), ("tied", (2, 3))),
        embedding_size=3,
        classes=2,
        trainable=frozenset({"fc.bias", "fc.twin", "fc.weight"}),
        normalization=frozenset(),
        tied=(("tied", "fc.weight"),),
    )
    document = genesis(4, learning=(("shapes", json.dumps(write_model_info(info))),))
    passport = written(tmp_path, document, STATE | {"tied": STATE["fc.weight"]})
    assert check_passport(passport.data, NAME, passport.file).tensors == 5
    other = file_of(document, STATE | {"tied": STATE["fc.twin"]})
    assert str(refusal(rewritten(passport, other), other)) == "tensors: tied is not the knowledge's"
    without = file_of(document, STATE)
    assert str(refusal(rewritten(passport, without), without)) == "tensors: tied is not in the file"
    unreadable = genesis(4, learning=(("shapes", "[]"),))
    with pytest.raises(InvalidPassport, match="founding document: its shapes cannot be read: shapes must hold"):
        written(tmp_path / "other", unreadable)


@pytest.mark.parametrize("shapes", ["{", "7", "[" * 100_000, '{"parameters": 7}'])
def test_shapes_of_another_form_are_said_to_be_unreadable(tmp_path: Path, shapes: str) -> None:
    with pytest.raises(InvalidPassport, match=r"^founding document: its shapes cannot be read: "):
        written(tmp_path, genesis(4, learning=(("shapes", shapes),)))


@pytest.mark.parametrize("file", [b"", b"\xff" * 16])
def test_a_file_that_holds_no_tensors_is_no_model(passport: Written, file: bytes) -> None:
    """Its digest may be in the passport, as anybody can write one."""
    assert str(refusal(rewritten(passport, file), file)).startswith("model file: it is no safetensors file: ")


def test_a_changed_number_is_refused_even_if_all_hashes_are_made_anew(passport: Written) -> None:
    changed = STATE | {"fc.bias": np.array([0.5, -1.5], np.float32)}
    assert resealed(passport, lambda predicate: None, file_of(passport.document, changed)).part == "knowledge"


def test_texts_of_others_in_the_header_are_believed_and_not_proven(passport: Written) -> None:
    """The header is in no digest but the file's, and anybody can write a passport for another header."""
    said = read_metadata(passport.file)["fedchain"]
    another_form = json.dumps(json.loads(said) | {"chain_id": bytes(32).hex(), "note": "certified"})
    words = "model file: its header says where it is from in another form than ours"
    assert (
        str(resealed(passport, lambda predicate: None, safetensors.numpy.save(STATE, {"fedchain": another_form})))
        == words
    )
    for texts, is_more in (({"accuracy": "0.99"}, True), ({}, False)):
        file = safetensors.numpy.save(STATE, texts)
        report = check_passport(rewritten(passport, file), NAME, file)
        assert (report.says_more, "all else that the file's header says" in tell(report)[-1]) == (is_more, is_more)


def test_another_federation_cannot_vouch(passport: Written, tmp_path: Path) -> None:
    """All of another federation's proof is sound; the model is not its own."""
    other = json.loads(written(tmp_path, genesis(4, name="other")).data)["predicate"]

    def block(predicate: Any) -> None:
        predicate["block"] = other["block"]

    def federation(predicate: Any) -> None:
        predicate["federation"] = other["federation"]

    def both(predicate: Any) -> None:
        block(predicate)
        federation(predicate)

    assert str(resealed(passport, block)).startswith("block: chain: ")
    assert str(resealed(passport, federation)).startswith("block: chain: ")
    assert str(resealed(passport, both)) == "model file: its header names another federation, round or member"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda predicate: predicate["block"].update(height=True), "block: its height is 3"),
        (lambda predicate: predicate["block"].update(height=3.0), "block: its height is 3"),
        (lambda predicate: predicate["block"].update(round=2), "block: its round is 3"),
        (lambda predicate: predicate["block"].update(light_blocks=[]), "block: there is none"),
        (lambda predicate: predicate["block"].update(light_blocks=[7]), "block: its bytes are not in base64"),
        (lambda predicate: predicate["block"].update(light_blocks={}), "passport: its light_blocks is missing"),
        (
            lambda predicate: predicate["federation"].update(name="other"),
            "federation: its name in the document is test",
        ),
        (lambda predicate: predicate["federation"].update(genesis=7), "founding document: its bytes are not in base64"),
        (lambda predicate: predicate["federation"].update(more=1), "federation: its fields are not"),
        (lambda predicate: predicate["knowledge"].update(encoding="other"), "knowledge: its encoding is not"),
        (
            lambda predicate: predicate["knowledge"]["digest"].update(sha256="00" * 32),
            "knowledge: its hash in the block",
        ),
        (lambda predicate: predicate["knowledge"]["pieces"].append(7), "knowledge: piece 9 is neither"),
        (lambda predicate: predicate["knowledge"]["pieces"].append({"tensor": "x"}), "knowledge: piece 9 is tensor x"),
        (lambda predicate: predicate.update(tool={"name": "x", "version": "1"}), "tool: a name and a version"),
        (lambda predicate: predicate.update(certified=True), "passport: its fields are not tool, federation, block"),
        (lambda predicate: predicate.update(tool={"version": 1, "name": "fedchain"}), "passport: its version"),
    ],
)
def test_a_forger_that_makes_all_hashes_anew_is_refused_all_the_same(
    passport: Written, change: Callable[[Any], None], words: str
) -> None:
    assert str(resealed(passport, change)).startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda statement: statement.update(_type="https://in-toto.io/Statement/v2"), "_type: https://in-toto.io/S"),
        (
            lambda statement: statement.update(predicateType="urn:other:v1"),
            "predicateType: urn:other:v1 found, urn:fed",
        ),
        (
            lambda statement: statement["subject"].append({**statement["subject"][0], "name": "x"}),
            "subject: it is not o",
        ),
        (lambda statement: statement["subject"][0].update(name="other.safetensors"), "subject: its name is not model"),
    ],
)
def test_a_statement_about_something_else_is_refused(
    passport: Written, change: Callable[[Any], None], words: str
) -> None:
    statement = json.loads(passport.data)
    del statement["predicate"]["checksum"]
    change(statement)
    statement["predicate"]["checksum"] = {"sha256": sha256(to_json(statement)).hex()}
    assert str(refusal(to_json(statement), passport.file)).startswith(words)


def test_base64_has_one_form_in_it(passport: Written) -> None:
    """The last letter before the padding has bits that mean nothing: each proof had others that say the same."""
    changed = 0

    def another_last_letter(text: str) -> str:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        last = len(text.rstrip("=")) - 1
        found = text[:last] + letters[letters.index(text[last]) ^ 1] + text[last + 1 :]
        assert base64.b64decode(found, validate=True) == base64.b64decode(text)
        return found

    for place, piece in enumerate(json.loads(passport.data)["predicate"]["knowledge"]["pieces"]):
        if piece.get("bytes", "").endswith("="):
            changed += 1

            def change(predicate: Any, place: int = place) -> None:
                piece = predicate["knowledge"]["pieces"][place]
                piece["bytes"] = another_last_letter(piece["bytes"])

            assert str(resealed(passport, change)) == "knowledge: its bytes are not in base64"
    assert changed


def test_where_a_round_leaves_nothing_behind_there_is_no_passport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelRules, "aggregate", lambda *given: write_knowledge([]))
    with pytest.raises(InvalidPassport, match=r"^knowledge: it is empty$"):
        written(tmp_path, genesis(4))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b"{}", b"\xff", b"[" * 100_000, b'{"_type": 1}', b'"\\ud800"']
)
def test_what_is_no_passport_is_refused_as_one(data: bytes) -> None:
    assert refusal(data, b"").part == "passport"


# --- every byte


def spans(text: str) -> dict[str, tuple[int, int]]:
    """Where the values of a passport stand in it, by the part that their flipped bytes are refused by."""
    found = {}
    for part, key in (
        ("founding document", '"genesis": "'),
        ("founding document ", '"chain_id": "'),
        ("tool", '"version": "'),
        ("model file", '"name": "model.safetensors",\n   "digest": {\n    "sha256": "'),
        ("tensors", '"tensor_data": {\n    "sha256": "'),
        ("checksum", '"checksum": {\n   "sha256": "'),
        ("block", '"hash": "'),
        ("block ", '"light_blocks": [\n    "'),
    ):
        begin = text.index(key) + len(key)
        found[part] = begin, text.index('"', begin)
    return found


PARTS = {
    *("passport", "subject", "model file", "founding document", "federation", "block", "knowledge", "tensors", "tool"),
    *("_type", "predicateType", "checksum"),
}

EXPECTED = {"tool": {"checksum", "passport"}}
"""Values that nothing else holds are found by the checksum; a flip may also break the form."""


def flip(data: bytes, place: int, mask: int) -> bytes:
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def judge_flip(passport: Written, place: int, mask: int) -> None:
    part = refusal(flip(passport.data, place, mask), passport.file).part
    assert part in PARTS
    for name, (begin, end) in spans(passport.data.decode()).items():
        if begin <= place < end:
            assert part in EXPECTED.get(name.strip(), {name.strip(), "passport"}), (place, part, name)


def test_other_white_space_and_repeated_names_are_another_form(passport: Written) -> None:
    """Programs that read JSON take them for the same document."""
    places = [place for place, byte in enumerate(passport.data) if byte in b" \n"]
    for place in places[:: max(1, len(places) // 40)]:
        error = refusal(passport.data[:place] + b"\t" + passport.data[place + 1 :], passport.file)
        assert error.part in ("passport", "subject")
    twice = passport.data.replace(b' "_type": ', b' "_type": "first",\n "_type": ', 1)
    assert json.loads(twice) == json.loads(passport.data)
    for data in (twice, passport.data + b"\n", passport.data[:-1]):
        assert str(refusal(data, passport.file)) == "passport: it is not written as passports are"


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=150)
def test_a_flipped_byte_of_a_passport_is_refused_by_the_name_of_its_part(
    passport: Written, place: int, mask: int
) -> None:
    judge_flip(passport, place % len(passport.data), mask)


@pytest.mark.long
def test_flipped_bytes_all_over_a_passport_are_refused(passport: Written) -> None:
    for place in range(0, len(passport.data), 3):
        judge_flip(passport, place, 1)


def test_each_flipped_byte_of_the_model_is_refused(passport: Written) -> None:
    for place in range(len(passport.file)):
        assert refusal(passport.data, flip(passport.file, place, 1)).part == "model file"


def test_each_flipped_byte_of_the_proof_is_refused_even_if_all_hashes_are_made_anew(passport: Written) -> None:
    def flipped(place: int) -> Callable[[Any], None]:
        def change(predicate: Any) -> None:
            blocks = predicate["block"]["light_blocks"]
            blocks[0] = base64.b64encode(flip(base64.b64decode(blocks[0]), place, 1)).decode()

        return change

    size = len(base64.b64decode(json.loads(passport.data)["predicate"]["block"]["light_blocks"][0]))
    for place in range(0, size, 7):
        assert resealed(passport, flipped(place)).part == "block"


# --- files


def test_a_passport_is_named_by_itself_or_by_its_model(passport: Written, tmp_path: Path) -> None:
    model, beside = tmp_path / NAME, tmp_path / (NAME + SUFFIX)
    beside.write_bytes(passport.data)
    with pytest.raises(InvalidPassport, match=r"^subject: model\.safetensors is not beside the passport: No such file"):
        read_passport(beside)
    model.write_bytes(passport.file)
    assert read_passport(model) == read_passport(beside) == check_passport(passport.data, NAME, passport.file)


def test_a_passport_that_is_larger_than_any_is_not_read(
    passport: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(passport.data)
    monkeypatch.setattr("fedchain.simulator.trained.passport.PASSPORT_SIZE_MAX", size - 1)
    (tmp_path / NAME).write_bytes(passport.file)
    (tmp_path / (NAME + SUFFIX)).write_bytes(passport.data)
    with pytest.raises(InvalidPassport, match=f"^passport: {size} bytes found, at most {size - 1} are read$"):
        read_passport(tmp_path / NAME)


def test_pipes_are_not_waited_for_and_devices_not_read_to_their_end(passport: Written, tmp_path: Path) -> None:
    """Somebody else may have made the folder."""
    model, beside = tmp_path / NAME, tmp_path / (NAME + SUFFIX)
    os.mkfifo(beside)
    with pytest.raises(InvalidPassport, match=r"^passport: it is no file$"):
        read_passport(beside)
    beside.unlink()
    beside.symlink_to("/dev/zero")
    with pytest.raises(InvalidPassport, match=r"^passport: it is no file$"):
        read_passport(beside)
    beside.unlink()
    beside.write_bytes(passport.data)
    os.mkfifo(model)
    with pytest.raises(InvalidPassport, match=r"^subject: model\.safetensors beside the passport is no file$"):
        read_passport(beside)


def test_a_model_is_not_proven_by_a_passport_of_another_one(passport: Written, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(passport.file)
    other = tmp_path / "other.safetensors"
    other.write_bytes(flip(passport.file, len(passport.file) - 1, 1))
    (tmp_path / ("other.safetensors" + SUFFIX)).write_bytes(passport.data)
    with pytest.raises(InvalidPassport, match=r"^subject: the passport is of model\.safetensors, not of other\.saf"):
        read_passport(other)
    assert read_passport(tmp_path / ("other.safetensors" + SUFFIX)).file == NAME


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_without_a_name_has_no_passport(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        read_passport(Path(path))


@pytest.mark.parametrize("name", ["../model.safetensors", "", ".", "..", "a\0b", "\ud800", 7])
def test_a_subject_leads_to_no_other_folder(passport: Written, tmp_path: Path, name: Any) -> None:
    statement = json.loads(passport.data)
    statement["subject"][0]["name"] = name
    (tmp_path / "a.passport.json").write_bytes(to_json(statement))
    with pytest.raises(InvalidPassport) as caught:
        read_passport(tmp_path / "a.passport.json")
    assert caught.value.part == "subject"


def test_checking_needs_no_torch(passport: Written, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(passport.file)
    (tmp_path / (NAME + SUFFIX)).write_bytes(passport.data)
    code = """
import sys
from fedchain.cli.main import app
app(["passport", "verify", sys.argv[1]], standalone_mode=False)
print("heavy", sorted({"torch", "scipy", "sklearn", "matplotlib"} & {name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / NAME)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[0].startswith("federation  test, 4 members; chain id ")
    assert done.stdout.splitlines()[5:] == ["heavy []"]


# --- memory


def test_no_tensor_of_a_large_model_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2**18
    state = {f"layer{number}.weight": np.full(size // 4, number + 0.5, np.float32) for number in range(8)}
    monkeypatch.setattr(f"{__name__}.STATE", state)
    passport = written(tmp_path, genesis(4), state)
    monkeypatch.setattr("fedchain.files.spool.MAPPED_SIZE", size)
    (tmp_path / NAME).write_bytes(passport.file)
    (tmp_path / (NAME + SUFFIX)).write_bytes(passport.data)
    with Store.open(tmp_path / "chain", read_only=True) as store:
        explorer = Explorer(store)
        header, knowledge = explorer.kept.left_behind(None)
        (tmp_path / "knowledge").write_bytes(knowledge)
        in_place = read_in_place(tmp_path / "knowledge")
        monkeypatch.setattr(explorer.kept, "left_behind", lambda _: (header, in_place))
        tracemalloc.start()
        try:
            assert read_passport(tmp_path / NAME).tensors == len(state)
            assert write_passport(explorer, None, NAME, read_in_place(tmp_path / NAME)) == passport.data
            assert tracemalloc.get_traced_memory()[1] < 2 * size, "of a model of 8"
        finally:
            tracemalloc.stop()
