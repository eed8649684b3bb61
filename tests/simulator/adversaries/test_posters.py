"""Members that post what is wrong stop nobody."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.exceptions import Refused
from fedchain.crypto.hashing import Hash
from fedchain.crypto.threshold.share_proof import ShareProof, ShareStatement, is_proven
from fedchain.network.messages import PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.events import Contributed, Event, MessageReceived
from fedchain.node.core.jobs import Job, Result, VerifySignatures
from fedchain.simulator.adversaries.posters import InvalidPoster
from fedchain.simulator.disturbances import Traitors
from tests.support.campaigns import some
from tests.support.simulator.encrypted import SCENARIO, SETTINGS, run
from tests.support.simulator.encrypted import outcome as outcome


@pytest.mark.long
@pytest.mark.parametrize("behaviour", some(["invalid-poster", "post-equivocator"], first=1))
def test_a_liar_s_posts_stop_nobody(behaviour: str) -> None:
    found = run(replace(SCENARIO, rounds=1, adversaries=(Traitors(behaviour=behaviour, peers=(2,)),)))
    assert found.rows[0].posts >= SETTINGS["decryption_threshold"], "shares that open the sums"


@pytest.mark.long
def test_forged_shares_are_looked_at_once_named_and_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member posts well-formed shares that are none, another kind in each round."""
    liar, mine, others = 2, list[bytes](), list[bytes]()
    verified, refused = Counter[tuple[Hash, ShareProof]](), dict[int, Counter[str]]()
    run_job = Checks.run

    def forge(self: InvalidPoster, event: Event) -> Sequence[Event]:
        match event:
            case MessageReceived(_, PostMessage(post, payload)) if post.phase == 1 and payload is not None:
                others.append(payload)
            case Contributed(number, 1, payload):
                mine.append(payload)
                changed, too_large = payload[:-1] + bytes([payload[-1] ^ 1]), payload[:-90] + b"\xff" * 90
                foreign = others[0] if number > 1 else b""  # in the first round nobody else need have spoken
                self.post((changed, mine[0], foreign, too_large)[number - 1], None)
                return ()
        return (event,)

    def counting(statement: ShareStatement, proof: ShareProof) -> bool:
        verified[statement.digest, proof] += 1
        return is_proven(statement, proof)

    def noting(self: Checks, job: Job) -> Result:
        result = run_job(self, job)
        if isinstance(result, Refused) and not isinstance(job, VerifySignatures):
            refused.setdefault(job.state.round, Counter())[str(result)] += 1
        return result

    monkeypatch.setattr(InvalidPoster, "listen", forge)
    monkeypatch.setattr("fedchain.crypto.threshold.decryption.is_proven", counting)
    monkeypatch.setattr(Checks, "run", noting)
    found = run(replace(SCENARIO, rounds=4, adversaries=(Traitors(behaviour="invalid-poster", peers=(liar,)),)))
    assert [row.posts for row in found.rows] == [3] * 4, "the others opened the sums of each round"
    assert max(verified.values()) <= SCENARIO.peers + 1, "each node and the auditor, once"
    reasons = ["the proof does not hold for these ciphertexts"] * 3 + [
        "as a share, ciphertext 39 of 40 is not from 1 to"
    ]
    for number, reason in enumerate(reasons, 1):  # the liar's node, too: others send it the post that it does not show
        ((message, times),) = refused[number].items()
        assert (
            times,
            re.search(rf"decryption shares of peer {liar} \(\w+\) are refused: {reason}", message) is not None,
        ) == (SCENARIO.peers, True)
