"""One of each record of a chain, for tests of how they are written and read."""

from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys

SIZE_MAX = 2**20
GENESIS = genesis(3)
BUILDER = ChainBuilder(GENESIS)
FIRST, SECOND = BUILDER.extend_many(2)
THIRD = BUILDER.extend(evidence=[double_vote(keys(1)[0], GENESIS, 2), double_post(keys(2)[1], GENESIS, 1)])
POST = SECOND.transactions[0]
assert SECOND.certificate is not None
CERTIFICATE = SECOND.certificate
VOTE = CERTIFICATE.votes[0]
CRIME = THIRD.evidence[0]
