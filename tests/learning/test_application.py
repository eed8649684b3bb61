import gc
import math
import re
import sys
import sysconfig
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

from fedchain.crypto.hashing import sha256
from fedchain.files.spool import Spool, SpoolFolder, path_of, write_pieces
from fedchain.learning.application import Application, _Context
from fedchain.learning.config import CLIENTS_MAX, LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload, OwnCodeFailed
from fedchain.learning.knowledge import KNOWLEDGE_SIZE_MAX, KnowledgeReader
from fedchain.learning.method import Lifetime, Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.models.parameters import PREFIX
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.codec import canonical, decode, encode, pieces
from fedchain.learning.payload.document import Buffer
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec
from fedchain.learning.round import OffChain, Round, Tensors
from tests.support.learning.federation import check

INFO = describe_model("digits-mlp")
METHODS = ("dfpl", "fedavg", "blade-fl", "solo")


def random_payload(method: str, rng: np.random.Generator) -> bytes:
    if method == "solo":
        return encode({})
    if method == "dfpl":
        labels = np.sort(rng.choice(INFO.classes, size=rng.integers(1, 6), replace=False))
        prototypes = rng.normal(size=(len(labels), INFO.embedding_size)).astype(np.float32)
        return encode({"labels": labels, "counts": rng.integers(1, 99, size=len(labels)), "prototypes": prototypes})
    tensors = {PREFIX + name: rng.normal(size=shape).astype(np.float32) for name, shape in INFO.parameters}
    examples = {"examples": rng.integers(1, 500, size=1)} if method in ("fedavg", "scaffold") else {}
    if method != "scaffold":
        return encode(tensors | examples)
    change = rng.normal(size=INFO.parameter_count).astype(np.float32)
    return encode(tensors | examples | {"control_change": change, "length": np.array([0.4], np.float32)})


def random_posts(method: str, count: int, seed: int = 0) -> list[tuple[bytes, bytes]]:
    rng = np.random.default_rng(seed)
    return sorted((rng.bytes(32), random_payload(method, rng)) for _ in range(count))


@pytest.mark.parametrize("method", METHODS)
def test_a_valid_post_passes_and_knowledge_can_be_read(method: str) -> None:
    rules, posts = Application(LearningConfig(method=method)), random_posts(method, 4)
    assert rules.phases == (("update", "participant", 0),)
    assert rules.setup_phases == ()
    for _, payload in posts:
        check(rules, payload)
        assert len(payload) <= rules.payload_size_max("update")
    knowledge = rules.aggregate(OffChain("update", 1), b"", posts)
    assert rules.read_knowledge(knowledge) is not None
    assert rules.read_knowledge(b"") is None
    assert rules.aggregate(OffChain("update", 2), knowledge, []) == knowledge
    again = rules.aggregate(OffChain("update", 2), knowledge, posts)
    assert again == knowledge.replace(b"update\x01", b"update\x02")
    assert again != knowledge


@pytest.mark.parametrize("method", ["blade-fl", "fedadam"])
def test_no_knowledge_is_larger_than_the_rules_say(method: str) -> None:
    rules, posts = Application(LearningConfig(method=method)), random_posts("fedavg", 3)
    posts = random_posts(method, 3) if method == "blade-fl" else posts
    knowledge = rules.aggregate(OffChain("update", 2), rules.aggregate(OffChain("update", 1), b"", posts), posts)
    assert len(knowledge) <= rules.knowledge_size_max() < 1.1 * len(knowledge)
    assert (len(knowledge) > 2.9 * len(posts[0][1])) == (method == "fedadam"), "Adam's moments are in it"


@dataclass(frozen=True, kw_only=True)
class Showing(BladeFl):
    """BLADE-FL with a setup whose mean stays for ever."""

    setup: ClassVar[tuple[Phase, ...]] = (Phase("show", lifetime=Lifetime.FEDERATION),)
    show = BladeFl.update


def test_what_stands_beside_the_knowledge_is_reckoned_with() -> None:
    alone, both = (KnowledgeReader(method, INFO, 4).size_bytes_max for method in (BladeFl(), Showing()))
    assert both == 2 * alone


def test_what_posts_decide_is_reckoned_at_its_largest() -> None:
    """DemLearn leaves a model for each group. Nobody expects more than a document can hold."""
    rules = Application(LearningConfig(method="demlearn", hyperparameters={"levels": 2}))
    groups = 8 * sum(4 * math.prod(shape) for _, shape in INFO.parameters)
    assert groups < rules.knowledge_size_max() < groups + 17 * CLIENTS_MAX
    assert 10 * 4 * INFO.embedding_size < Application(LearningConfig(method="dfpl")).knowledge_size_max() < 5_000
    large = replace(INFO, parameters=(("fc.weight", (100_000_000,)),), trainable=frozenset({"fc.weight"}))
    rules = Application(LearningConfig(method="demlearn", dataset="own", shapes=large, clients=4))
    assert rules.knowledge_size_max() == KNOWLEDGE_SIZE_MAX < 16 * 400_000_000 < rules.stated_size


def test_a_machine_s_own_error_while_aggregating_is_itself_and_not_its_own_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*arguments: object) -> Any:
        raise MemoryError("no room for the sums")

    rules = Application(LearningConfig(method="blade-fl"))
    monkeypatch.setattr(type(rules.method), "aggregate", exhausted)
    with pytest.raises(MemoryError) as caught:
        rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2))
    assert caught.value.__cause__ is None
    assert "Traceback" in "".join(caught.value.__notes__)


@pytest.mark.long
@pytest.mark.parametrize("method", ["dfpl", "fedavg"])
def test_posts_in_any_order_of_arrival_give_the_same_bytes(method: str) -> None:
    rules, posts = Application(LearningConfig(method=method)), random_posts(method, 5)
    expected = rules.aggregate(OffChain("update", 1), b"", posts)
    for arrival in permutations(posts):
        assert rules.aggregate(OffChain("update", 1), b"", sorted(arrival)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_changes_no_byte(method: str) -> None:
    rules, posts, found = Application(LearningConfig(method=method)), random_posts(method, 20), set()
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.add(rules.aggregate(OffChain("update", 1), b"", posts))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_posts_out_of_order_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="ascending order of sender"):
        Application(LearningConfig()).aggregate(OffChain("update", 1), b"", random_posts("dfpl", 3)[::-1])


@pytest.mark.parametrize(
    ("labels", "counts", "rows", "message"),
    [
        ([1, 1], [5, 5], 2, "labels: strictly ascending order expected"),
        ([2, 1], [5, 5], 2, "labels: strictly ascending order expected"),
        ([1, 2], [5], 2, "counts: one for each of 2 labels expected, found 1"),
        ([1, 2], [5, 5], 1, "prototypes: one for each of 2 labels expected, found 1"),
        ([1, 2], [5, 0], 2, "elements of counts: at least 1 expected, found 0"),
        ([1, 10], [5, 5], 2, "elements of labels: at most 9 expected, found 10"),
    ],
)
def test_inconsistent_prototypes_are_refused(labels: list[int], counts: list[int], rows: int, message: str) -> None:
    prototypes = np.zeros((rows, INFO.embedding_size), np.float32)
    payload = encode({"labels": np.array(labels), "counts": np.array(counts), "prototypes": prototypes})
    with pytest.raises(InvalidPayload, match=message):
        check(Application(LearningConfig()), payload)


@pytest.mark.parametrize("examples", [0, -1, (1 << 24) + 1])
def test_a_boastful_number_of_examples_is_refused(examples: int) -> None:
    tensors = {PREFIX + name: np.zeros(shape, np.float32) for name, shape in INFO.parameters}
    with pytest.raises(InvalidPayload, match="elements of examples"):
        check(Application(LearningConfig(method="fedavg")), encode(tensors | {"examples": np.array([examples])}))


def test_a_solo_post_must_be_empty() -> None:
    with pytest.raises(InvalidPayload):
        check(Application(LearningConfig(method="solo")), encode({"x": np.zeros(1, np.float32)}))


def test_knowledge_is_decoded_once_for_all_posts_of_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, posts = Application(LearningConfig(method="fedavg")), random_posts("fedavg", 2)
    first, second = (rules.aggregate(OffChain("update", 1), b"", posts[:count]) for count in (1, 2))
    payload, decoded = posts[0][1], list[bytes]()

    def counting(data: Buffer, specs: Sequence[TensorSpec]) -> Any:
        decoded.append(bytes(data))
        return decode(data, specs)

    monkeypatch.setattr("fedchain.learning.knowledge.decode", counting)
    for _ in range(3):
        rules.check(OffChain("update", 2), b"a", bytes(bytearray(first)), payload)  # other bytes of the same value
        rules.aggregate(OffChain("update", 3), second, [(b"a", payload)])
    assert [known.endswith(data) for known, data in zip((first, second), decoded, strict=True)] == [True, True]
    for knowledge in (b"damaged", b"damaged"):
        with pytest.raises(InvalidPayload):
            rules.read_knowledge(knowledge)
    rules.read_knowledge(first)
    assert len(decoded) == 2


def test_a_checked_post_is_not_decoded_again_when_its_phase_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, posts = Application(LearningConfig(method="fedavg")), random_posts("fedavg", 3)
    decoded = list[bytes]()

    def counting(data: bytes, specs: Sequence[TensorSpec]) -> Any:
        decoded.append(data)
        return decode(data, specs)

    monkeypatch.setattr("fedchain.learning.post_form.decode", counting)
    for sender, payload in posts[:2]:
        rules.check(OffChain("update", 1), sender, b"", payload)
    first = rules.aggregate(OffChain("update", 1), b"", posts)
    assert decoded == [payload for _, payload in posts]
    for number in (2, 3):  # other phases: the first one's are forgotten
        rules.check(OffChain("update", number), posts[0][0], first, posts[0][1])
    assert rules.aggregate(OffChain("update", 1), b"", posts) == first
    assert len(decoded) == 3 + 2 + 3


def test_large_posts_are_let_go_when_their_phase_closes_or_another_one_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, posts = Application(LearningConfig(method="fedavg")), random_posts("fedavg", 3)
    kept = rules._decoded
    monkeypatch.setattr("fedchain.learning.application.POSTS_SIZE_MAX", 2 * len(posts[0][1]))
    for sender, payload in posts:
        rules.check(OffChain("update", 1), sender, b"", payload)
    before = [kept.find(_Context("update", 1, 0, None), payload) is not None for _, payload in posts]
    first = rules.aggregate(OffChain("update", 1), b"", posts)
    after = [kept.find(_Context("update", 1, 0, None), payload) is not None for _, payload in posts]
    assert (before, after) == ([True] * 3, [False] * 3)
    assert rules.aggregate(OffChain("update", 1), b"", posts) == first
    for number, (sender, payload) in ((2, posts[0]), (3, posts[1]), (3, posts[2])):
        rules.check(OffChain("update", number), sender, first, payload)
    rounds = zip((2, 3, 3), posts, strict=True)
    left = [kept.find(_Context("update", number, 0, None), data) is not None for number, (_, data) in rounds]
    assert left == [False, True, True], "three of them are too many, and the open phase goes on"


@pytest.mark.parametrize(("method", "files"), [("fedavg", 1), ("scaffold", 2)])
def test_large_posts_that_are_unpacked_wait_in_files(
    method: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of c_i, which follows from SCAFFOLD's packed posts, has a file of its own."""
    settings = LearningConfig(method=method, hyperparameters={"compression": "int8"})
    whole, in_memory = random_posts(method, 3), Application(settings)
    known = in_memory.aggregate(OffChain("update", 1), b"", whole)
    form, base = in_memory.forms[0], in_memory.read_knowledge(known)
    plain = [form.decode("update", payload, None) for _, payload in whole]
    packed = [form.encode("update", tensors, base, np.random.default_rng(0)) for tensors in plain]
    posts = [(sender, payload) for (sender, _), payload in zip(whole, packed, strict=True)]
    expected = in_memory.aggregate(OffChain("update", 2), known, posts)
    monkeypatch.setattr("fedchain.learning.compression.packing.MAPPED_SIZE", 1000)
    monkeypatch.setattr("fedchain.learning.application.POSTS_SIZE_MAX", 1)
    rules = Application(settings, spools=SpoolFolder(tmp_path / "spool", size_min=1000))
    for number, (sender, payload) in enumerate(posts, start=1):
        rules.check(OffChain("update", 2), sender, known, payload)
        assert len(list((tmp_path / "spool").iterdir())) == number * files, "they are unpacked once"
    found = rules.aggregate(OffChain("update", 2), known, posts)
    assert found[:] == expected
    del found
    gc.collect()
    assert not list((tmp_path / "spool").iterdir()), "and go with their phase"


def test_what_a_large_aggregate_computes_once_lies_in_a_file(tmp_path: Path) -> None:
    settings = LearningConfig(method="fedadam", hyperparameters={"aggregation_rule": "median"})
    posts, folder, begun = random_posts("fedavg", 3), SpoolFolder(tmp_path / "spool", size_min=1000), list[Spool]()

    def spools() -> Spool:
        begun.append(folder())
        return begun[-1]

    rules = Application(settings, spools=spools)
    known = rules.aggregate(OffChain("update", 1), b"", posts)
    found = rules.aggregate(OffChain("update", 2), known, posts)
    assert len(begun) == 4, "in each round, the models' median and what Adam makes of it"
    assert path_of(found) is not None
    assert found[:] == Application(settings).aggregate(OffChain("update", 2), known[:], posts)


def test_the_summary_describes_the_prototypes() -> None:
    rules = Application(LearningConfig())
    prototypes = np.zeros((3, INFO.embedding_size), np.float32)
    prototypes[0, :2], prototypes[1, 0] = (3.0, 4.0), 2.0
    payload = encode({"labels": np.array([1, 5, 7]), "counts": np.array([1, 1, 1]), "prototypes": prototypes})
    other = encode({"labels": np.array([5]), "counts": np.array([9]), "prototypes": prototypes[1:2]})
    summary = rules.summary(rules.aggregate(OffChain("update", 1), b"", [(b"a", payload), (b"b", other)]))
    assert summary is not None
    assert summary.labels == (1, 5, 7)
    assert summary.holders == (1, 2, 1)
    assert summary.norms == (5.0, 2.0, 0.0)
    assert summary.cosines == ((1.0, 0.6, 0.0), (0.6, 1.0, 0.0), (0.0, 0.0, 0.0))
    assert rules.summary(b"") is None


def test_methods_without_prototypes_have_no_summary() -> None:
    rules = Application(LearningConfig(method="blade-fl"))
    assert rules.summary(rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2))) is None


def test_knowledge_is_exported_as_safetensors() -> None:
    rules = Application(LearningConfig(method="blade-fl"))
    knowledge = rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2))
    loaded = safetensors.numpy.load(b"".join(rules.safetensors(knowledge)))
    assert {name.removeprefix(PREFIX): array.shape for name, array in loaded.items()} == dict(INFO.parameters)
    assert safetensors.numpy.load(b"".join(rules.safetensors(b""))) == {}


def test_the_configuration_is_validated() -> None:
    with pytest.raises(ConfigurationError):
        Application(LearningConfig(clients=0))


@dataclass(frozen=True, kw_only=True)
class Refusing(BladeFl):
    """A method of a user's own whose aggregate raises."""

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        raise ERRORS[0]


@dataclass(frozen=True, kw_only=True)
class RefusingLater(BladeFl):
    """A method of a user's own whose aggregate raises when one of its tensors is looked at."""

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        def refuse() -> NDArray[np.float32]:
            raise ERRORS[0]

        mean = super().aggregate(phase, round)
        return LazyTensors(dict.fromkeys(mean, refuse))


@dataclass(frozen=True, kw_only=True)
class Leaving(BladeFl):
    """A method of a user's own whose aggregate has one number that it should not have."""

    number: float = 0.0

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        mean = dict(super().aggregate(phase, round))
        first = next(iter(mean))
        mean[first] = mean[first].copy()
        mean[first].flat[-1] = self.number
        return mean


ERRORS: list[BaseException] = []


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_no_bound_is_near_to_is_a_fault_of_a_user_s_own_aggregate(
    monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    rules = Application(LearningConfig(method="contributed:Leaving"))
    monkeypatch.setattr(rules, "method", Leaving(number=number))
    message = rf"^model\..* of the aggregate has {number} in it: Leaving\.aggregate must return finite numbers$"
    with pytest.raises(OwnCodeFailed, match=message):
        rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2))


def test_a_finite_number_of_a_user_s_own_aggregate_is_moved_to_the_nearest_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    rules = Application(LearningConfig(method="contributed:Leaving", hyperparameters={"number": -3e38}))
    left = rules.read_knowledge(rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2)))
    assert left is not None
    assert min(float(tensor.min()) for tensor in left.values()) == -MAGNITUDE_MAX


def test_a_built_in_method_is_ended_by_no_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posts that nobody foresaw leave all peers with the same numbers."""
    rules = Application(LearningConfig(method="blade-fl"))
    monkeypatch.setattr(rules, "method", Leaving(number=math.nan))
    left = rules.read_knowledge(rules.aggregate(OffChain("update", 1), b"", random_posts("blade-fl", 2)))
    assert left is not None
    assert all(np.isfinite(tensor).all() for tensor in left.values())


@pytest.mark.parametrize("method", ["Refusing", "RefusingLater"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("boom"), OwnCodeFailed),
        (KeyError("boom"), OwnCodeFailed),
        (InvalidPayload("too large"), InvalidPayload),
        (OSError("a file of its own"), OwnCodeFailed),
        (MemoryError("as much as a post says"), OwnCodeFailed),
        (SystemExit("the node goes on"), OwnCodeFailed),
    ],
)
def test_only_a_refusal_of_a_user_s_own_aggregate_is_the_senders_fault(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: type[Exception], method: str
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "ERRORS", [error])
    with pytest.raises(expected) as caught:
        Application(LearningConfig(method=f"contributed:{method}")).aggregate(
            OffChain("update", 1), b"", random_posts("blade-fl", 2)
        )
    assert isinstance(caught.value, ValueError) == isinstance(error, InvalidPayload)


def test_a_user_s_own_method_answers_for_what_it_inherits_and_a_built_in_one_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: BladeFl, phase: Phase, round: Round) -> Tensors:
        raise ValueError("boom")

    broken.__code__ = broken.__code__.replace(co_filename=sysconfig.get_path("purelib") + "/any.py")
    monkeypatch.setattr(BladeFl, "aggregate", broken)
    monkeypatch.setitem(sys.modules, "contributed", SimpleNamespace(Inheriting=Inheriting))
    posts = random_posts("blade-fl", 2)
    with pytest.raises(OwnCodeFailed, match=r"^aggregate of phase update: ValueError: boom\n"):
        Application(LearningConfig(method="contributed:Inheriting")).aggregate(OffChain("update", 1), b"", posts)
    with pytest.raises(ValueError, match=r"^boom\n"):
        Application(LearningConfig(method="blade-fl")).aggregate(OffChain("update", 1), b"", posts)


def test_what_a_user_s_own_method_says_is_short_and_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "ERRORS", [RuntimeError("\x1b[2J" + "A" * 1_000_000)])
    with pytest.raises(OwnCodeFailed) as caught:
        Application(LearningConfig(method="contributed:Refusing")).aggregate(
            OffChain("update", 1), b"", random_posts("blade-fl", 2)
        )
    assert re.fullmatch(r"aggregate of phase update: RuntimeError: \?\[2JA{296}… \(.*, line \d+\)", str(caught.value))


@dataclass(frozen=True, kw_only=True)
class Inheriting(BladeFl):
    """A method of a user's own that adds nothing."""


@pytest.mark.parametrize("method", ["fedavg", "blade-fl", "fedprox"])
def test_a_large_aggregate_is_written_tensor_by_tensor(tmp_path: Path, method: str) -> None:
    info = replace(INFO, parameters=tuple((f"{number}.weight", (512, 1024)) for number in range(8)))
    info = replace(info, trainable=frozenset(name for name, _ in info.parameters))
    config, rng = LearningConfig(method=method, dataset="own", shapes=info), np.random.default_rng(0)
    tensors = [
        {PREFIX + name: rng.standard_normal(shape, np.float32) for name, shape in info.parameters} for _ in range(2)
    ]
    examples = {} if method == "blade-fl" else {"examples": np.array([3])}
    spools = SpoolFolder(tmp_path / "spool", size_min=2**20)
    posts = [
        (bytes([number]), write_pieces(pieces({**canonical(one), **examples}), spools))
        for number, one in enumerate(tensors)
    ]
    assert [path_of(payload) for _, payload in posts] != [None, None]
    expected = Application(config).aggregate(OffChain("update", 1), b"", [(who, data[:]) for who, data in posts])
    rules = Application(config, spools=spools)
    tracemalloc.start()
    found = rules.aggregate(OffChain("update", 1), b"", posts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[:] == expected
    assert sha256(found) == sha256(expected)
    assert path_of(found) is not None
    assert peak < 3 * 4 * 512 * 1024, "of 16 MiB, a tensor of 2 MiB and its checks are in memory"
