"""Recollection: a node takes records from its store and journal, each judged as if it came from the network.

Disks lose data, bugs write wrong ones, and anybody that can write to a folder can put records with right checksums into
it. The node leaves out records that it refuses, and tells the operator.
"""

from collections.abc import Iterator

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Statement
from fedchain.chain.exceptions import InvalidCertificate, Refused
from fedchain.chain.state import State
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import validate_certificate, validate_polka
from fedchain.chain.vote import Vote, VoteKind
from fedchain.node.core.context import Context
from fedchain.node.core.notices import NotBelieved


def own_statements(context: Context) -> Iterator[Statement]:
    """Votes for the open height and posts of rounds that may still count them, which our key signed; the journal may
    lack them."""
    storage, head = context.storage, context.head
    oldest = min((head.round, *(item.round for item in head.owed)))
    stored: list[Statement] = [*storage.votes(head.height + 1), *storage.posts(oldest)]
    for statement in stored:
        author = statement.voter if isinstance(statement, Vote) else statement.sender
        if author != context.me:  # the folder was another member's
            if head.roster.current(author) == context.me:
                continue  # our former key's, which is no alarm: a key that was replaced says nothing any more
            if isinstance(statement, Vote) and context.is_signed(author, statement):
                continue  # our own votes rest on it
            context.tell(NotBelieved(_describe(statement), f"it is {author.hex()[:16]}…'s, not ours"))
        elif not context.is_signed(author, statement):
            context.tell(NotBelieved(_describe(statement), "our key did not sign it"))
        else:
            yield statement


def lock_proof(context: Context) -> Certificate | None:
    """The prevotes that allowed the journal's lock at the open height; None if it holds none for that lock."""
    journal, head = context.journal, context.head
    proof = journal.proof
    if proof is None or journal.lock is None:
        return None
    try:
        validate_polka(context.genesis, head, proof, context.signatures)
        if journal.lock != (proof.attempt, proof.block_hash):
            found = f"attempt {proof.attempt}, block {proof.block_hash.hex()[:16]}… found"
            raise InvalidCertificate("proof of a lock", f"{found}, the lock is another one")
    except Refused as error:
        context.tell(NotBelieved(f"the journal's proof of a lock at height {journal.height}", str(error)))
        return None
    return proof


def lost_decision(context: Context) -> Certificate | None:
    """The journal's precommits for a block of the open height: the store had it as the head, and was lost since.

    The others may lack one of the votes, and our key has gone on to the next height and votes in this one no more.
    """
    journal, head = context.journal, context.head
    proof, height = journal.proof, journal.height - 1
    if proof is None or journal.lock is not None or height != head.height + 1:
        return None
    kind, electors = VoteKind.PRECOMMIT, head.roster.electors
    try:
        validate_certificate(context.genesis, electors, proof, kind, height, proof.block_hash, context.signatures)
    except Refused as error:
        context.tell(NotBelieved(f"the journal's certificate of height {height}", str(error)))
        return None
    return proof


def open_candidates(context: Context) -> Iterator[tuple[Block, State]]:
    """Stored candidates for the open height, with the states after them; their knowledge is not recomputed."""
    for block in context.storage.candidates():
        if block.header.parent_hash != context.head.block_hash:
            continue
        try:
            yield block, judge_block(context.genesis, context.head, block, None, context.signatures)
        except Refused as error:
            context.tell(NotBelieved(f"candidate {block.hash.hex()[:16]}…", str(error)))


def _describe(statement: Statement) -> str:
    if isinstance(statement, Vote):
        return f"a {statement.kind.name.lower()} at height {statement.height}, attempt {statement.attempt}"
    return f"a post in round {statement.round}, phase {statement.phase}"
