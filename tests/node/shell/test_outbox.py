"""The queue of effects: whatever arrives while the disk is busy, nothing vanishes and nothing is sent too early."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.storage.store import Contents, Record
from fedchain.crypto.hashing import sha256
from fedchain.node.core.effects import Effect, Persist, Retain, Wake, WriteJournal
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.outbox import EffectQueue
from tests.support.node.shell import on_trio, until


class Disk:
    """Commits when it is let; ``log`` has what became durable and what was carried out, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.is_open = anyio.Event()
        self.is_busy = False

    async def commit(self, records: list[Record], journal: Journal | None) -> None:
        self.is_busy = True
        await self.is_open.wait()
        self.is_busy = False
        self.log += [("stored", record) for record in records]
        if journal is not None:
            self.log.append(("journal", journal))

    async def act(self, effect: Effect) -> None:
        self.log.append(("done", effect))


def persist(number: int) -> Persist:
    data = b"%d" % number
    return Persist((Contents({sha256(data): data}),))


def effects_of(kinds: str) -> list[Effect]:
    """Effects by their letters: p to persist, j for a journal, a for anything else; each is another one."""
    made: list[Effect] = []
    for number, kind in enumerate(kinds):
        of_kind: dict[str, Effect] = {"p": persist(number), "j": WriteJournal(Journal(slot=(number, 0, 1)))}
        made.append(of_kind.get(kind, Wake(number)))
    return made


def check_order(put: list[Effect], log: list[tuple[str, object]]) -> None:
    """Everything was carried out once, in order, and after all that had to be durable before it."""
    assert [what for how, what in log if how == "done"] == [e for e in put if isinstance(e, Wake)]
    stored = [what for how, what in log if how == "stored"]
    assert stored == [record for effect in put if isinstance(effect, Persist) for record in effect.records]
    for place, effect in enumerate(put):
        if isinstance(effect, Wake):
            before = log[: log.index(("done", effect))]
            durable = [e for e in put[:place] if isinstance(e, Persist)]
            assert all(("stored", record) in before for e in durable for record in e.records)
            journals = [e.journal for e in put[:place] if isinstance(e, WriteJournal)]
            assert not journals or ("journal", journals[-1]) in before
        elif isinstance(effect, Persist):
            journals = [e.journal for e in put[:place] if isinstance(e, WriteJournal)]
            firsts = [log.index(("stored", record)) for record in effect.records]
            assert not journals or ("journal", journals[-1]) in log[: min(firsts)]
    journals = [e.journal for e in put if isinstance(e, WriteJournal)]
    assert not journals or ("journal", journals[-1]) in log


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("pja", min_size=1, max_size=4), min_size=1, max_size=6), st.lists(st.booleans(), max_size=6))
def test_no_interleaving_of_arrivals_and_commits_loses_an_effect_or_sends_it_early(
    batches: list[str], commits_between: list[bool]
) -> None:
    async def main() -> list[tuple[str, object]]:
        disk = Disk()
        queue = EffectQueue(disk.commit, disk.act)
        put = effects_of("".join(batches))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.run)
            for number, batch in enumerate(batches):
                start = sum(map(len, batches[:number]))
                queue.put(put[start : start + len(batch)])
                await anyio.wait_all_tasks_blocked()
                if number < len(commits_between) and commits_between[number]:  # the disk ends what it is doing
                    disk.is_open.set()
                    await anyio.wait_all_tasks_blocked()
                    disk.is_open = anyio.Event()
            disk.is_open.set()
            with anyio.fail_after(10):
                while len(queue):
                    await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        check_order(put, disk.log)
        return disk.log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedchain.node.shell.outbox.STORE_PAUSE_S", 0.0005)
        anyio.run(main, backend="trio")


@on_trio
async def test_a_record_that_arrives_while_others_are_stored_is_stored_before_what_follows_it() -> None:
    disk = Disk()
    queue = EffectQueue(disk.commit, disk.act)
    first, send_first, second, send_second = persist(1), Wake(1), persist(2), Wake(2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.run)
        queue.put([first, send_first])
        await until(lambda: disk.is_busy, "the first record is being stored")
        queue.put([second, send_second])
        disk.is_open.set()
        await until(lambda: ("done", send_second) in disk.log, "all is done")
        tasks.cancel_scope.cancel()
    names = ["stored", "done", "stored", "done"]
    assert [how for how, _ in disk.log] == names
    check_order([first, send_first, second, send_second], disk.log)


@pytest.mark.parametrize("is_stopped", [False, True])
@on_trio
async def test_a_vote_is_in_the_journal_before_it_is_in_the_store(is_stopped: bool) -> None:
    """One that a crash left in the store alone locks its node on a block without the prevotes that allowed it. If a
    liar withholds its own, others that are locked on another block never follow, and nothing is decided any more."""
    disk = Disk()
    queue = EffectQueue(disk.commit, disk.act)
    payload, journal, vote, send = persist(1), WriteJournal(Journal(slot=(3, 1, 2))), persist(2), Wake(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.run)
        queue.put([payload, journal, vote, send])
        await until(lambda: disk.is_busy, "the first commit is made")
        disk.is_open.set()
        if is_stopped:
            tasks.cancel_scope.cancel()
        else:
            await until(lambda: ("done", send) in disk.log, "all is done")
            tasks.cancel_scope.cancel()
    made = [what for how, what in disk.log if how != "done"]
    assert made[-3:] == [*payload.records, journal.journal, *vote.records]


@on_trio
async def test_what_has_to_be_durable_becomes_so_when_the_node_stops() -> None:
    disk = Disk()
    disk.is_open.set()
    queue = EffectQueue(disk.commit, disk.act)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedchain.node.shell.outbox.STORE_PAUSE_S", 1e6)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.run)
            queue.put([persist(1), persist(2)])
            await anyio.wait_all_tasks_blocked()
            assert disk.log == [], "nothing waits for them"
            tasks.cancel_scope.cancel()
    assert [how for how, _ in disk.log] == ["stored", "stored"]


@on_trio
async def test_what_arrives_while_the_last_records_are_stored_keeps_no_node_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others go on to ask until the network ends, which is after that. Such a loop let nobody else run, for ever."""
    looks, front = 0, EffectQueue._front

    def look(queue: EffectQueue) -> int:
        nonlocal looks
        looks += 1
        assert looks < 100, "it looks at the same effect for ever"
        return front(queue)

    monkeypatch.setattr(EffectQueue, "_front", look)
    disk = Disk()
    queue = EffectQueue(disk.commit, disk.act)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.run)
        queue.put([persist(1), Wake(1)])
        await until(lambda: disk.is_busy, "the record is being stored")
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            disk.is_busy = False
            await until(lambda: disk.is_busy, "it is being stored as the last one")
            queue.put([Wake(2), persist(2)])
            disk.is_open.set()
    assert disk.log == [("stored", record) for record in persist(1).records]


@on_trio
async def test_effects_that_need_nothing_durable_go_at_once() -> None:
    disk = Disk()
    queue = EffectQueue(disk.commit, disk.act)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.run)
        queue.put([Wake(1), Retain(frozenset())])
        await until(lambda: len(disk.log) == 2, "both are done")
        tasks.cancel_scope.cancel()
