"""The privacy ledger on disk: it begins with the private randomness, and is missed when it is gone."""

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.chain.genesis import Genesis
from fedchain.cli.main import app
from fedchain.files.layout import TRAINING_FILE
from fedchain.learning.exceptions import LedgerDamaged, ReleaseRefused
from fedchain.learning.executors.executor import Question
from fedchain.learning.families.local_sgd import NO_EPSILON
from fedchain.learning.privacy.ledger import COPY_SIZE, RECORD_SIZE, Budget, Entry, PrivacyLedger
from fedchain.learning.privacy.releases import Release
from fedchain.node.custody.journal_file import JournalFile, journal_path
from fedchain.node.custody.ledger_file import ledger_path, open_ledger
from fedchain.node.custody.secrets_file import open_secrets, secrets_path
from fedchain.node.workers.process import Trainer
from tests.support.chain.builders import keys
from tests.support.node.shell import DIGITS, write_genesis

NOISE = {"prototype_noise": 4.0, "gradient_noise": 8.0}
ALONE = {"gradient_noise": 0.0, "epsilon_budget": 0.0}
FREE = Budget(0.0, 1e-5)


def entry(number: int) -> Entry:
    return Entry(number, "update", f"{number:x}", Release("prototypes", 3.0, 1.0))


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    return tmp_path / "key.pem.abababab.secrets"


def test_it_lies_beside_the_private_randomness_for_its_owner_alone(secrets: Path) -> None:
    open_secrets(secrets, 2)
    path = ledger_path(secrets)
    assert path.name == "key.pem.abababab.privacy"
    assert path.stat().st_mode & 0o077 == 0
    open_ledger(secrets, 2).charge(entry(1), FREE)
    open_ledger(secrets, 2).charge(entry(2), FREE)
    assert [found.round for found in open_ledger(secrets, 2).entries()] == [1, 2]
    assert path.stat().st_size == 2 * RECORD_SIZE


def test_it_may_be_asked_for_before_the_randomness_is_drawn(secrets: Path) -> None:
    open_ledger(secrets, 2).charge(entry(1), FREE)
    open_secrets(secrets, 2)
    assert len(open_ledger(secrets, 2).entries()) == 1


def test_who_removed_it_is_told_and_nothing_is_let_out(secrets: Path) -> None:
    open_secrets(secrets, 2)
    ledger_path(secrets).unlink()
    with pytest.raises(LedgerDamaged, match=r"privacy ledger of member 2: .*\.privacy is gone; put it back"):
        open_ledger(secrets, 2)
    assert not ledger_path(secrets).exists()


def test_a_disk_that_refuses_is_named(secrets: Path) -> None:
    with pytest.raises(LedgerDamaged, match=r"privacy ledger of member 1: .* cannot be made: No such file"):
        open_ledger(secrets / "nowhere", 1)
    ledger = open_ledger(secrets, 1)
    ledger_path(secrets).unlink()
    with pytest.raises(LedgerDamaged, match="privacy ledger of member 1 cannot be used"):
        ledger.charge(entry(1), FREE)


def test_a_release_is_on_the_disk_before_the_ledger_says_so(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy after copy: of a record that was torn, one is whole. And the folder knows of the file."""
    synced, folders = list[int](), list[Path]()

    def sync(descriptor: int) -> None:
        written = ledger_path(secrets).read_bytes()
        copies = [written[place : place + COPY_SIZE] for place in range(0, len(written), COPY_SIZE)]
        synced.append(sum(bool(copy.strip(b"\0")) for copy in copies))

    monkeypatch.setattr("os.fdatasync", sync)
    monkeypatch.setattr("fedchain.node.custody.ledger_file.sync_folder", folders.append)
    ledger = open_ledger(secrets, 1)
    assert folders == [secrets.parent]
    ledger.charge(entry(1), FREE)
    ledger.charge(entry(2), FREE)
    assert synced == [1, 2, 3, 4]


def test_no_link_is_followed(secrets: Path) -> None:
    """A user that may write beside a key could have a node that runs as root write elsewhere."""
    ledger, target = open_ledger(secrets, 1), secrets.with_name("elsewhere")
    ledger_path(secrets).rename(target)
    ledger_path(secrets).symlink_to(target)
    for opened in (ledger, open_ledger(secrets, 1)):
        with pytest.raises(LedgerDamaged, match="privacy ledger of member 1 cannot be used"):
            opened.charge(entry(1), FREE)
    assert target.read_bytes() == b""


def test_a_pipe_in_its_place_keeps_nobody_waiting(secrets: Path) -> None:
    os.mkfifo(ledger_path(secrets), 0o600)
    for ask in (PrivacyLedger.entries, lambda ledger: ledger.charge(entry(1), FREE)):
        with pytest.raises(
            LedgerDamaged, match=r"^privacy ledger of member 1 cannot be used: .* is a pipe or a device"
        ):
            ask(open_ledger(secrets, 1))


def charge_many(secrets: Path, numbers: range) -> None:
    for number in numbers:
        open_ledger(secrets, 0).charge(entry(number), FREE)


def test_two_processes_lose_nothing(secrets: Path) -> None:
    """The trainer of a node that was killed may live on for a moment beside its successor."""
    open_ledger(secrets, 0)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=charge_many, args=(secrets, range(one, one + 20))) for one in (1, 101)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(open_ledger(secrets, 0).entries()) == 40


def test_a_trainer_charges_before_it_answers_and_never_twice_for_the_same_bytes(tmp_path: Path) -> None:
    hyperparameters = dict(DIGITS.hyperparameters) | NOISE | {"epsilon_budget": 2.2}
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, hyperparameters=hyperparameters))
    genesis, secrets = Genesis.decode(path.read_bytes()), tmp_path / "key.secrets"

    def trainer(folder: str) -> Trainer:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Trainer(genesis, tmp_path / folder, 1, secrets=str(secrets))

    first = trainer("a").ask(Question(1, "update", 1, b""))
    assert [found.release.mechanism for found in open_ledger(secrets, 1).entries()] == ["gradients", "prototypes"]
    (tmp_path / "a" / TRAINING_FILE).unlink()  # killed after the ledger was written, before the answer was
    assert trainer("a").ask(Question(1, "update", 1, b"")) == first
    assert len(open_ledger(secrets, 1).entries()) == 2
    again = trainer("a")
    assert again.ask(Question(1, "update", 2, b"")) != first
    refusal = again.ask(Question(1, "update", 3, b""))
    assert isinstance(refusal, ReleaseRefused)
    assert str(refusal).startswith("member 1, round 3: its total epsilon would be")


@pytest.mark.parametrize("is_covered", [True, False])
def test_an_operator_whose_first_release_was_refused_has_spent_nothing(tmp_path: Path, is_covered: bool) -> None:
    """The ledger is made before the release is charged, and holds none."""
    hyperparameters = dict(DIGITS.hyperparameters) | NOISE | {"epsilon_budget": 3.0} | ({} if is_covered else ALONE)
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, hyperparameters=hyperparameters))
    keys(2)[1].save(key := tmp_path / "key.pem")
    secrets = secrets_path(key, Genesis.decode(path.read_bytes()).chain_id)
    with pytest.raises(ReleaseRefused):
        open_ledger(secrets, 1).charge(Entry(1, "update", "ab", Release("prototypes", 0.1, 2.0)), Budget(0.5, 1e-5))
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    total = "epsilon 0.0 of 3 at delta 1e-05" if is_covered else NO_EPSILON
    assert run.stdout == f"total         {total}\n"


def test_an_operator_can_read_what_was_spent(tmp_path: Path) -> None:
    hyperparameters = dict(DIGITS.hyperparameters) | NOISE | {"epsilon_budget": 3.0}
    path = write_genesis(tmp_path / "genesis", replace(DIGITS, hyperparameters=hyperparameters))
    key = tmp_path / "key.pem"
    chain_id = Genesis.decode(path.read_bytes()).chain_id
    secrets = secrets_path(key, chain_id)
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    assert (run.exit_code, "this key has let nothing out" in run.stderr) == (2, True)
    keys(2)[1].save(key)
    secrets.write_bytes(bytes(32))
    secrets.chmod(0o600)
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    assert (run.exit_code, "privacy is gone; put it back" in run.stderr) == (2, True)
    secrets.unlink()
    for number in (1, 2):
        open_ledger(secrets, 1).charge(Entry(number, "update", "ab", Release("prototypes", 8.0, 2.0)), FREE)
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    assert run.stdout.splitlines() == [
        "round 1     update  prototypes of all examples, 1 x noise 8 for sensitivity 2  epsilon 0.9264",
        "round 2     update  prototypes of all examples, 1 x noise 8 for sensitivity 2  epsilon 1.357",
        "total         epsilon 1.357 of 3 at delta 1e-05",
    ]
    found = json.loads(CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path), "--json"]).stdout)
    assert [row["epsilon"] for row in found["releases"]] == pytest.approx([0.926341504, 1.356467364])
    noised = replace(DIGITS, hyperparameters=hyperparameters)
    for version, code in ((2, 2), (3, 0)):  # a newcomer's key stands in no founding document
        later = write_genesis(tmp_path / f"later-{version}", noised, version=version)
        keys(3)[2].save(came := tmp_path / f"came-{version}.pem")
        its_own = secrets_path(came, Genesis.decode(later.read_bytes()).chain_id)
        open_ledger(its_own, 2).charge(Entry(4, "update", "ab", Release("prototypes", 8.0, 2.0)), FREE)
        run = CliRunner().invoke(app, ["node", "privacy", str(came), "--genesis", str(later)])
        assert (run.exit_code, run.stdout.startswith("round 4     update")) == (code, code == 0)
    alone = write_genesis(tmp_path / "alone", replace(DIGITS, hyperparameters={**hyperparameters, **ALONE}))
    other = secrets_path(key, Genesis.decode(alone.read_bytes()).chain_id)
    open_ledger(other, 1).charge(Entry(1, "update", "ab", Release("prototypes", 8.0, 2.0)), FREE)
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(alone)])
    assert run.stdout.splitlines() == [
        "round 1     update  prototypes of all examples, 1 x noise 8 for sensitivity 2",
        f"total         {NO_EPSILON}",
    ]
    found = json.loads(CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(alone), "--json"]).stdout)
    assert (found["epsilon"], [row["epsilon"] for row in found["releases"]]) == (None, [None])
    ledger = ledger_path(secrets)
    ledger.write_bytes(bytes(COPY_SIZE) * 2 + ledger.read_bytes()[RECORD_SIZE:])
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    assert (run.exit_code, "ledger of member 1 is damaged: record 0 was written, and is not whole" in run.stderr) == (
        2,
        True,
    )
    key.unlink()
    JournalFile.open(journal_path(key, chain_id), chain_id, keys(2)[0].public_key, 2).close()
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(path)])
    assert "ledger of member 0 is damaged" in run.stderr, "the journal says whose it is"
    plain = write_genesis(tmp_path / "plain")
    run = CliRunner().invoke(app, ["node", "privacy", str(key), "--genesis", str(plain)])
    assert (run.exit_code, "dfpl adds no noise as it is set" in run.stderr) == (2, True)
