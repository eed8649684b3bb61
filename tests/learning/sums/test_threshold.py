"""Encrypted prototypes: the same sums as in clear, opened by t members, and no others, whatever anybody sends."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedchain.crypto.address import address
from fedchain.crypto.threshold import (
    Encryptor,
    FixedPoint,
    ThresholdPublicKey,
)
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_SIZE
from fedchain.crypto.threshold.share_proof import response_bits
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import (
    ConfigurationError,
    DecryptionRefused,
    NothingToPost,
    SecretMissing,
)
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.integers import read_integers, write_integers
from fedchain.learning.registry import HyperparameterValue, build_method
from fedchain.learning.round import OffChain
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.sums.threshold import FRACTION_BITS, PUBLIC_KEY, smallest_threshold, usual_threshold
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.crypto.threshold.dealt import MEMBERS, SENDERS, random_source
from tests.support.learning.encrypted_game import (
    CHAIN,
    HOLDERS_MIN,
    SMALL,
    THRESHOLD,
    Game,
    dealing,
    key_shares,
    proven,
    secrets_of,
    task,
)


def plain_round(config: LearningConfig, contributors_min: int, *, over_all: bool) -> dict[int, np.ndarray]:
    """The same round in integers: each member's fixed-point numbers, added up in clear."""
    settings = dict(config.hyperparameters)
    learner = Learner(replace(config, hyperparameters={**settings, "encryption": "none"}), members=SENDERS)
    spec = learner.method.payload_spec(learner.method.phases[0], learner.info)
    point = FixedPoint(FRACTION_BITS, float(learner.method.magnitude_max))  # type: ignore[attr-defined]
    numbers: dict[int, list[np.ndarray]] = {}
    for member in range(MEMBERS):
        posted = decode(learner.contribute(member, "update", 1, b"").payload, spec)
        for label, prototype in zip(posted["labels"].tolist(), posted["prototypes"], strict=True):
            numbers.setdefault(label, []).append(point.encode(prototype))
    return {
        label: (np.sum(rows, axis=0) * 2.0**-FRACTION_BITS / (MEMBERS if over_all else len(rows))).astype(np.float32)
        for label, rows in sorted(numbers.items())
        if len(rows) >= contributors_min
    }


@pytest.mark.parametrize(
    ("method", "settings"),
    [("FedPh", {}), ("Dfpl", {}), ("FedProto", {}), ("Dfpl", {"aggregation": "all"})],
)
def test_an_encrypted_round_is_the_plain_integer_round_bit_for_bit(
    method: str, settings: dict[str, HyperparameterValue]
) -> None:
    config = task(method, **settings)
    known = Game(config).play(1)
    expected = plain_round(config, HOLDERS_MIN, over_all="aggregation" in settings)
    assert known["labels"].tolist() == list(expected)
    assert known["prototypes"].tobytes() == np.stack(list(expected.values())).tobytes()
    assert (known["holders"] >= HOLDERS_MIN).all()


def test_what_is_encrypted_is_as_exact_as_a_float32_of_magnitude_1() -> None:
    draw, point = np.random.default_rng(0), FixedPoint(FRACTION_BITS, 1.0)
    large = draw.uniform(0.5, 1.0, 1_000).astype(np.float32)
    assert (point.decode(point.encode(large)) == large).all()
    small = draw.uniform(-0.5, 0.5, 1_000).astype(np.float32)
    errors = np.abs(point.decode(point.encode(small)) - small)
    assert 0 < errors.max() <= np.spacing(np.float32(0.5)) / 2


def test_classes_with_too_few_holders_stay_closed() -> None:
    game = Game(task(contributors_min=3))
    game.close("update", 1, game.posts("update", 1))
    sums = game.rules._round(OffChain("update", 1, SENDERS), game.known).beside["update"]
    assert (sums["holders"] < 3).any()
    opened = int((sums["holders"] >= 3).sum())
    per_class = len(sums["sums"]) // len(sums["labels"])
    share = game.read("decryption_share", game.posts("decryption_share", 1, [0])[0][1])["shares"]
    key = dealing().public_key
    assert len(share) // key.ciphertext_size >= opened * per_class
    assert len(share) < (opened * per_class + 3) * key.ciphertext_size, (
        "proof and shares of what may be opened, no more"
    )


def test_any_t_members_open_the_same_and_nobody_trains_on_ciphertexts() -> None:
    config = task()
    found = {Game(config).play(1, helpers)["prototypes"].tobytes() for helpers in ((0, 1), (4, 2), range(MEMBERS))}
    assert len(found) == 1
    game = Game(config)
    assert game.rules.phases == (("update", "participant", 0), ("decryption_share", "participant", THRESHOLD))
    game.close("update", 1, game.posts("update", 1))
    assert game.rules.read_knowledge(game.known) is None


def test_a_round_without_shares_keeps_the_last_prototypes_and_the_next_goes_on() -> None:
    game = Game(task())
    before = game.play(1)
    game.close("update", 2, game.posts("update", 2))
    game.close("decryption_share", 2, [])
    kept = game.rules.read_knowledge(game.known)
    assert kept is not None
    assert kept["prototypes"].tobytes() == before["prototypes"].tobytes()
    assert game.play(3)["prototypes"].tobytes() != before["prototypes"].tobytes()


def test_fewer_shares_than_the_threshold_open_nothing() -> None:
    game = Game(task())
    game.play(1)
    game.close("update", 2, game.posts("update", 2))
    before = game.known
    game.close("decryption_share", 2, game.posts("decryption_share", 2, range(THRESHOLD - 1)))
    assert game.known == before


def test_shares_for_other_sums_are_refused_by_the_name_of_their_member() -> None:
    game, other = Game(task()), Game(task(), b"\x08" * 32)
    posts = game.posts("update", 1)
    for each in (game, other):
        each.close("update", 1, posts)
    assert game.known == other.known
    elsewhere = other.posts("decryption_share", 1, [2])[0][1]
    good = game.posts("decryption_share", 1, [2])[0][1]
    for member, payload in ((2, elsewhere), (1, good)):
        found = game.refused("decryption_share", member, payload)
        assert found.startswith(
            f"decryption shares of peer {member} ({address(SENDERS[member])}) are refused: the proof does not hold"
        )
    assert "left nothing to open in round 2" in game.refused("decryption_share", 2, good, number=2)
    shares = game.read("decryption_share", good)["shares"].copy()
    for place in (0, 40, len(shares) - 1):
        mutated = shares.copy()
        mutated[place] ^= 1
        assert "shares of peer 2 (" in game.refused("decryption_share", 2, encode({"shares": mutated}))
    assert "bytes" in game.refused("decryption_share", 2, encode({"shares": shares[:-1].copy()}))


def test_ciphertexts_out_of_range_or_not_coprime_are_refused_by_the_name_of_their_member() -> None:
    game, key = Game(task()), dealing().public_key
    payload = game.posts("update", 1, [4])[0][1]
    for wrong, message in (
        (0, f"peer 4 ({address(SENDERS[4])}): ciphertext 1 of"),
        (int(key.ciphertext_modulus), "is not from 1 to"),
        (int(key.modulus) * 5, "is not coprime to n"),
    ):
        posted = game.read("update", payload)
        rows = posted["ciphertexts"].copy()
        rows[1] = np.frombuffer(wrong.to_bytes(key.ciphertext_size), dtype=np.uint8)
        found = game.refused("update", 4, encode(posted | {"ciphertexts": rows}))
        assert message in found
        assert found.startswith(f"peer 4 ({address(SENDERS[4])}): ciphertext 1 of")
    posted = game.read("update", payload)
    assert "expected for" in game.refused("update", 4, encode(posted | {"ciphertexts": posted["ciphertexts"][1:]}))
    labels = posted["labels"][::-1].copy()
    assert "strictly ascending" in game.refused("update", 4, encode(posted | {"labels": labels}))


def test_a_class_stands_once_in_a_post_however_well_its_contents_are_known() -> None:
    """One member that posted a class four times, zeros that it knows, would be four of its holders."""
    game = Game(task(contributors_min=5))
    per_class = len(game.read("update", game.posts("update", 1, [4])[0][1])["ciphertexts"])
    per_class //= len(game.read("update", game.posts("update", 1, [4])[0][1])["labels"])
    once = proven(game, 4, np.array([0]), [0] * per_class)
    game.rules.check(OffChain("update", 1, SENDERS), SENDERS[4], b"", once)
    for labels in ([0, 0], [0, 0, 0, 0], [0, 1, 1]):
        often = proven(game, 4, np.array(labels), [0] * per_class * len(labels))
        assert game.refused("update", 4, often) == f"labels: strictly ascending order expected, found {labels}"


def test_a_number_too_large_to_be_encrypted_names_its_member() -> None:
    game = Game(task("Dfpl", magnitude_max=2.0**-10))
    with pytest.raises(NothingToPost, match=r"member 1, round 1: .* their magnitude may be 0.0009765625"):
        game.learner.contribute(1, "update", 1, b"")


@pytest.mark.parametrize("kind", ["beyond all digits", "zero", "largest", "smallest", "powers"])
def test_whatever_a_member_encrypts_no_mean_is_beyond_its_bound_and_the_federation_goes_on(kind: str) -> None:
    game, half = Game(task()), int(dealing().public_key.plaintext_modulus) // 2
    posts = dict(game.posts("update", 1))
    honest = game.read("update", posts[SENDERS[1]])
    places = range(len(honest["ciphertexts"]))
    lie = {
        "beyond all digits": [half - 3**place for place in places],
        "zero": [0 for _ in places],
        "largest": [half for _ in places],
        "smallest": [-half for _ in places],
        "powers": [2 ** (7 * place) for place in places],
    }[kind]
    posts[SENDERS[1]] = proven(game, 1, honest["labels"], lie)
    game.rules.check(OffChain("update", 1, SENDERS), SENDERS[1], b"", posts[SENDERS[1]])
    game.close("update", 1, sorted(posts.items()))
    game.close("decryption_share", 1, game.posts("decryption_share", 1))
    known = game.rules.read_knowledge(game.known)
    assert known is not None
    bound, largest = 16.0, np.abs(known["prototypes"]).max()
    assert largest <= 1.0 if kind == "zero" else largest <= bound
    assert largest == bound or kind != "beyond all digits"
    assert game.play(2)


def test_nobody_posts_what_is_made_of_others_ciphertexts() -> None:
    """A member that could post A over the product of all others' would have the sum opened as twice A's vector."""
    game, key = Game(task()), dealing().public_key
    modulus = int(key.ciphertext_modulus)
    posts = dict(game.posts("update", 1))
    victim, own = game.read("update", posts[SENDERS[0]]), game.read("update", posts[SENDERS[4]])
    theirs = read_integers(victim["ciphertexts"])
    blinded = [
        number * int(each.power) % modulus
        for number, each in zip(theirs, Encryptor(key).randomizers(len(theirs), random_source("blind")), strict=True)
    ]
    for made in (
        theirs,
        blinded,
        [pow(number, -1, modulus) for number in theirs],
        [pow(n, 2, modulus) for n in blinded],
    ):
        for proof in (victim["proof"], own["proof"]):
            rows = write_integers(made, key.ciphertext_size)
            lie = encode({"labels": victim["labels"], "ciphertexts": rows, "proof": proof})
            found = game.refused("update", 4, lie)
            assert found == f"peer 4 ({address(SENDERS[4])}) does not prove that it knows what its ciphertexts hold"
    assert game.refused("update", 4, posts[SENDERS[0]]).startswith("peer 4 ("), "as it is"
    assert game.refused("update", 0, posts[SENDERS[0]], number=2).startswith("peer 0 ("), "a round later"
    other = Game(task(), b"\x08" * 32)
    assert other.refused("update", 0, posts[SENDERS[0]]).startswith("peer 0 ("), "in another federation"


def test_a_member_opens_nothing_that_was_not_added_up_or_by_too_few() -> None:
    game = Game(task(contributors_min=5))
    with pytest.raises(DecryptionRefused, match="member 0, round 1: phase update left nothing to open in round 1"):
        game.learner.contribute(0, "decryption_share", 1, b"")
    game.close("update", 1, game.posts("update", 1, [0, 1, 2]))
    with pytest.raises(
        DecryptionRefused, match=r"member 0, round 1: no class has the 5 contributors .* at most 2 have one"
    ):
        game.learner.contribute(0, "decryption_share", 1, game.known)
    with pytest.raises(DecryptionRefused, match="left nothing to open in round 2"):
        game.learner.contribute(0, "decryption_share", 2, game.known)
    assert "no class has the 5 contributors" in game.refused(
        "decryption_share", 0, encode({"shares": np.ones(9, np.uint8)})
    )


def test_a_member_opens_one_set_of_sums_a_round_after_a_crash_too() -> None:
    game, other = Game(task()), Game(task())
    game.close("update", 1, game.posts("update", 1))
    other.close("update", 1, other.posts("update", 1, [0, 1, 2, 3]))
    first = game.learner.contribute(1, "decryption_share", 1, game.known).payload
    restarted = game.start()
    restarted.restore(1, game.learner.checkpoint(1))
    for learner in (game.learner, restarted):
        with pytest.raises(DecryptionRefused, match="member 1, round 1: it has opened other sums, those of round 1"):
            learner.contribute(1, "decryption_share", 1, other.known)
        assert learner.contribute(1, "decryption_share", 1, game.known).payload == first, "the same again is no second"
    later = Game(task())
    later.close("update", 2, later.posts("update", 2))
    restarted.contribute(1, "decryption_share", 2, later.known)
    with pytest.raises(DecryptionRefused, match="round 1: it has opened other sums, those of round 2"):
        restarted.contribute(1, "decryption_share", 1, game.known)


def test_other_sums_of_the_same_holders_are_other_sums() -> None:
    """A liar that posts zeros in one block and ones in another changes no label and no holder."""
    game, other = Game(task()), Game(task())
    posts = dict(game.posts("update", 1))
    posted = game.read("update", posts[SENDERS[4]])
    game.close("update", 1, sorted(posts.items()))
    posts[SENDERS[4]] = proven(other, 4, posted["labels"], [0] * len(posted["ciphertexts"]))
    other.close("update", 1, sorted(posts.items()))
    game.learner.contribute(1, "decryption_share", 1, game.known)
    with pytest.raises(DecryptionRefused, match="member 1, round 1: it has opened other sums, those of round 1"):
        game.learner.contribute(1, "decryption_share", 1, other.known)


def test_what_is_encrypted_again_after_a_crash_is_the_same_and_other_numbers_have_other_randomness() -> None:
    game = Game(task())
    first = game.learner.contribute(1, "update", 1, b"").payload
    assert game.start().contribute(1, "update", 1, b"").payload == first
    round_of_1 = replace(game.rules._round(OffChain("update", 1, SENDERS), b""), me=SENDERS[1])
    sums = game.rules.method.sums.sums(round_of_1)  # type: ignore[attr-defined]
    labels, vectors = np.array([0]), np.zeros((1, 32), np.float32)
    moved = vectors.copy()
    moved[0, 0] = 0.5
    one, same, two = (sums.encrypt(labels, each, secrets_of(1))["ciphertexts"] for each in (vectors, vectors, moved))
    assert (one == same).all()
    assert (one != two).any(axis=1).all(), "every ciphertext differs, not the one that holds the number alone"


def test_the_same_vectors_have_other_randomness_in_each_round_federation_and_class() -> None:
    """Else anybody sees from two equal ciphertexts that a member's vector has not changed."""
    game = Game(task())
    round = replace(game.rules._round(OffChain("update", 1, SENDERS), b""), me=SENDERS[1])
    sums = game.rules.method.sums.sums(round)  # type: ignore[attr-defined]
    labels, vectors, secrets = np.array([0]), np.full((1, 32), 0.25, np.float32), secrets_of(1)
    made = [
        sums.encrypt(labels, vectors, secrets),
        sums.encrypt(labels + 1, vectors, secrets),
        replace(sums, round=replace(round, number=2)).encrypt(labels, vectors, secrets),
        replace(sums, round=replace(round, chain_id=b"\x08" * 32)).encrypt(labels, vectors, secrets),
    ]
    rows = {row.tobytes() for post in made for row in post["ciphertexts"]}
    assert len(rows) == len(made) * sums.per_class


def test_a_newcomer_that_was_dealt_no_share_refuses_to_open_and_has_not_failed() -> None:
    game = Game(task())
    game.close("update", 1, game.posts("update", 1))
    grown = replace(game.config, clients=MEMBERS + 1)
    secrets = Secrets(MEMBERS, bytes(ROOT_SIZE))
    learner = Learner(
        grown, members=(*SENDERS, b"newcomer"), chain_id=CHAIN, stores=Stores(secrets_of=lambda member: secrets)
    )
    with pytest.raises(DecryptionRefused, match=f"member {MEMBERS}, round 1: it was dealt no share of the key"):
        learner.contribute(MEMBERS, "decryption_share", 1, game.known)


def test_a_share_that_is_missing_or_another_s_is_said_to_be() -> None:
    game = Game(task())
    game.close("update", 1, game.posts("update", 1))
    for values, message in (
        ({}, "member 2 has no secret 'threshold_share'"),
        (
            {SHARE: secrets_of(1).values[SHARE]},
            "secret 'threshold_share' of peer 2: the share of peer 2 does not fit",
        ),
    ):
        secrets = Secrets(2, bytes(ROOT_SIZE), values)
        learner = Learner(
            game.config,
            members=SENDERS,
            chain_id=CHAIN,
            stores=Stores(secrets_of=lambda member, secrets=secrets: secrets),  # type: ignore[misc]
        )
        before = learner.checkpoint(2)
        with pytest.raises(SecretMissing, match=message):
            learner.contribute(2, "decryption_share", 1, game.known)
        assert learner.checkpoint(2) == before, "it has opened nothing"


def test_who_reads_the_root_of_randomness_alone_cannot_repeat_what_was_drawn_from_it() -> None:
    """It is stored without a passphrase; the nonce of a proof would give the member's share of the key away."""
    game = Game(task())
    round_of_1 = game.rules._round(OffChain("update", 1, SENDERS), b"")
    sums = game.rules.method.sums.sums(round_of_1)  # type: ignore[attr-defined]
    whole, root = secrets_of(1), Secrets(1, secrets_of(1).root)
    drawn = {sums.random_bytes(secrets, phase, b"what")(32) for secrets in (whole, root) for phase in ("a", "b")}
    assert len(drawn) == 4
    assert sums.random_bytes(whole, "a", b"what")(32) in drawn, "the same for the same"


def test_a_member_that_lost_its_memory_and_opens_other_sums_does_not_give_its_share_away() -> None:
    """Two proofs with one nonce and two challenges are two equations for the share of the key."""
    game, other, key = Game(task()), Game(task()), dealing().public_key
    game.close("update", 1, game.posts("update", 1))
    other.close("update", 1, other.posts("update", 1, [0, 1, 2, 3]))
    found = []
    for known in (game.known, other.known):
        made = game.start().contribute(1, "decryption_share", 1, known).payload
        data = game.read("decryption_share", made)["shares"].tobytes()
        response = data[CHALLENGE_SIZE : CHALLENGE_SIZE + (response_bits(key) + 7) // 8]
        found.append((int.from_bytes(data[:CHALLENGE_SIZE]), int.from_bytes(response)))
    (one, first), (two, second) = found
    assert one != two
    assert first - second != (one - two) * key.delta * key_shares()[1].secret


def test_shares_are_in_no_post_and_no_checkpoint() -> None:
    game = Game(task())
    game.play(1)
    for member in range(MEMBERS):
        secret = secrets_of(member).values[SHARE].lstrip(b"\0")
        assert secret not in game.known
        assert secret not in game.learner.checkpoint(member)
        assert secret.hex() not in repr(secrets_of(member))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"material": {}}, "encryption threshold needs a dealt key"),
        ({"material": {PUBLIC_KEY: b"\1"}}, "material 'threshold_key': 1 bytes"),
        ({"decryption_threshold": 3, "contributors_min": 4}, "material 'threshold_key' has threshold 2, 3 expected"),
        ({"contributors_min": 6}, "contributors_min is 6 of 5 members, it must be from 3"),
        ({"contributors_min": 2}, "contributors_min is 2 of 5 members, it must be from 3"),
        ({"contributors_min": 0}, "contributors_min is 0 of 5 members, it must be from 3"),
    ],
)
def test_material_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    config = task()
    if "material" in change:
        config = replace(config, **change)
    else:
        config = replace(config, hyperparameters={**dict(config.hyperparameters), **change})
    with pytest.raises(ConfigurationError, match=message):
        Application(config, SENDERS)
    Application(config)  # who founds a federation has no members yet


def test_a_key_for_other_members_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has members 5, 4 expected"):
        Application(replace(task(), clients=4), SENDERS[:4])


def test_members_that_join_later_may_have_been_dealt_shares() -> None:
    Application(task(), SENDERS[:4])
    with pytest.raises(ConfigurationError, match="has members 5, 6 expected"):
        Application(replace(task(), clients=6), (*SENDERS, b"another"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation_rule": "median"}, "aggregation_rule median cannot look into encrypted prototypes"),
        ({"aggregation": "samples"}, "aggregation samples needs counts"),
        ({"key_bits": 1024}, "key_bits must be 2048 or 3072, not 1024"),
        ({"key_bits": 320}, "key_bits must be 2048 or 3072, not 320"),
        ({"decryption_threshold": -1}, "decryption_threshold must lie in"),
        ({"contributors_min": 300}, "contributors_min must lie in"),
    ],
)
@pytest.mark.parametrize("method", ["dfpl", "fedproto", "fedph"])
def test_settings_that_cannot_be_encrypted_with_are_refused(
    method: str, settings: dict[str, HyperparameterValue], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_method(method, {"encryption": "threshold", **settings})


def test_a_threshold_beyond_the_members_is_not_dealt() -> None:
    method = build_method(f"{SMALL}FedPh", {"encryption": "threshold", "decryption_threshold": 4})
    assert isinstance(method, PrototypeMethod)
    with pytest.raises(ConfigurationError, match="decryption_threshold is 4 of 3 members, it must be from 2 to 3"):
        method.deal(SENDERS[:3], random_source("none"))
    assert build_method("fedph", {}).deal(SENDERS, random_source("none")) is None


def test_the_liars_that_a_federation_bears_open_nothing_and_its_silent_members_stop_nobody() -> None:
    for members in range(2, 60):
        liars = (members - 1) // 3
        least, usual = smallest_threshold(members), usual_threshold(members)
        assert least == max(2, liars + 1), "no fewer, and no more than that takes"
        assert least <= usual
        if usual > least:
            assert usual == 3
            assert usual + 1 <= members - liars, "those that are left open a sum of one holder more"
    assert [usual_threshold(members) for members in (3, 4, 5, 7, 9, 10, 20)] == [2, 2, 3, 3, 3, 4, 7]


def test_the_public_key_is_read_for_proper_keys_alone() -> None:
    key: ThresholdPublicKey = dealing().public_key
    config = LearningConfig(method="fedph", clients=MEMBERS, hyperparameters={"encryption": "threshold"})
    with pytest.raises(ConfigurationError, match="a modulus of 320 bits, allowed are 2048, 3072"):
        Application(replace(config, material={PUBLIC_KEY: key.encode()}), SENDERS)


def test_split_noise_adds_up_to_more_than_a_whole_one_in_the_opened_sum() -> None:
    quiet = replace(task(contributors_min=5, class_examples_min=8), partition="iid")
    noisy = replace(task(contributors_min=5, class_examples_min=8, noise="split"), partition="iid")
    method = build_method(noisy.method, dict(noisy.hyperparameters))
    assert isinstance(method, FedPh)
    assert method.sums.honest_min == 4
    counts = Learner(quiet).histogram()  # (K, C)
    clean, noised = Game(quiet).play(1), Game(noisy).play(1)
    labels = clean["labels"].tolist()
    assert noised["labels"].tolist() == labels == [c for c in range(10) if (counts[:, c] >= 8).all()]
    std = method.noise_std(8)
    assert {method.noise_std(int(count)) for count in counts[:, labels].ravel()} == {std}, (
        "whoever has more adds as much"
    )
    assert math.sqrt(method.sums.honest_min) * std >= replace(method, noise="local").noise_std(8), (
        "enough for the smallest"
    )
    measured = (noised["prototypes"] - clean["prototypes"]) * MEMBERS / (math.sqrt(MEMBERS) * std)  # (n, D)
    assert 0.8 < measured.std() < 1.2
