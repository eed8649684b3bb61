"""``/api/v1``: the explorer's answers as JSON, the same as its commands print with ``--json``."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.founding import plain_genesis
from fedchain.chain.explorer.plain import plain, plain_proof
from fedchain.chain.light.light_block import LightBlock
from fedchain.web.chains import Chain, Reading
from fedchain.web.figures.network import pairs_of
from fedchain.web.observed.requests import open_requests
from fedchain.web.open_round import open_round
from fedchain.web.pages import asked, blocks, rounds, search

LIMIT_MAX = 1_000
"""Blocks in one answer."""

LIGHT_MAX = 100
"""Light blocks in one answer."""

LIGHT_BYTES_MAX = 2**20
"""Bytes of light blocks after which an answer ends."""

Ask = Callable[[Chain, Reading, Request], Any]
"""A function that answers a question about a chain."""


def interface_routes(chains: Mapping[str, Chain]) -> list[Route]:
    """The addresses below ``/api/v1``."""
    asked: dict[str, Ask] = {
        "status": lambda chain, reading, request: reading.explorer.status(),
        "blocks": _blocks,
        "block/0": _genesis,
        "block/{name}": lambda chain, reading, request: blocks.block_view(chain, reading, request.path_params["name"]),
        "tx/{name}": lambda chain, reading, request: blocks.find_transaction(reading, request.path_params["name"]),
        "members": _members,
        "places": _places,
        "lives": _lives,
        "requests": lambda chain, reading, request: open_requests(chain),
        "rules": _rules,
        "member/{name}": _member,
        "round/{name}": _round,
        "knowledge": lambda chain, reading, request: reading.explorer.kept.knowledge(chain.rules()),
        "knowledge/{name}": _knowledge,
        "proof/{name}": _proof,
        "light": _light_blocks,
        "light/{name}/below": _certificate_below,
        "network": lambda chain, reading, request: pairs_of(chain).first(),
        "genesis": _genesis,
        "open": lambda chain, reading, request: open_round(chain, reading),
        "search": _search,
    }

    def listed(request: Request) -> Response:
        return JSONResponse([_describe(chain) for chain in chains.values()])

    def chain_of(request: Request) -> Chain:
        if request.path_params["chain"] not in chains:
            raise HTTPException(404)
        return chains[request.path_params["chain"]]

    def answer(ask: Ask) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            chain = chain_of(request)
            with chain.reading() as reading:
                return JSONResponse(plain(ask(chain, reading, request), reading.numbers))

        return respond

    def light_block(request: Request) -> Response:
        return JSONResponse(_light_block(chain_of(request), request))

    return [
        Route("/chains", listed),
        Route("/{chain}/light/{name}", light_block),
        *(Route(f"/{{chain}}/{path}", answer(ask)) for path, ask in asked.items()),
    ]


def _describe(chain: Chain) -> dict[str, Any]:
    return {
        "key": chain.key,
        "title": chain.title,
        "name": chain.genesis.name,
        "chain_id": chain.genesis.chain_id.hex(),
        "folders": [holder.place.label for holder in chain.holders],
    }


def _blocks(chain: Chain, reading: Reading, request: Request) -> Any:
    held = reading.explorer.held
    limit = max(1, min(LIMIT_MAX, asked.number_in(request.query_params, "limit", 20)))
    last = min(held.stop - 1, asked.number_in(request.query_params, "to", held.stop - 1))
    lines = reading.columns.lines(max(held.start, last - limit + 1), last)
    return [reading.columns.summary(line) for line in lines][::-1]


def _genesis(chain: Chain, reading: Reading, request: Request) -> Any:
    return plain_genesis(chain.genesis)


def _members(chain: Chain, reading: Reading, request: Request) -> Any:
    return reading.explorer.members(reading.columns)


def _places(chain: Chain, reading: Reading, request: Request) -> Any:
    height = asked.number_in(request.query_params, "height", reading.explorer.state.height + 1)
    return reading.explorer.membership.places(height)


def _lives(chain: Chain, reading: Reading, request: Request) -> Any:
    height = asked.number_in(request.query_params, "height", reading.explorer.state.height + 1)
    if reading.lives.height < height - 1 <= reading.explorer.state.height:
        return reading.explorer.membership.lives(height)
    return reading.explorer.membership.lives(height, reading.lives)


def _rules(chain: Chain, reading: Reading, request: Request) -> Any:
    height = asked.number_in(request.query_params, "height", reading.explorer.state.height + 1)
    return reading.explorer.membership.rules(height)


def _member(chain: Chain, reading: Reading, request: Request) -> Any:
    view = asked.peer(reading, asked.member_named(reading, request.path_params["name"]))
    return rounds.with_rounds(chain, reading, view)


def _round(chain: Chain, reading: Reading, request: Request) -> Any:
    return reading.explorer.round(asked.number_named(request.path_params["name"], "round"))


def _knowledge(chain: Chain, reading: Reading, request: Request) -> Any:
    number = asked.number_named(request.path_params["name"], "round")
    return reading.explorer.kept.knowledge(chain.rules(), number)


def _proof(chain: Chain, reading: Reading, request: Request) -> Any:
    return plain_proof(blocks.find_proof(reading, request.path_params["name"]))


def _light_block(chain: Chain, request: Request) -> Any:
    height = asked.number_named(request.path_params["name"], "height")
    low, high = (asked.number_in(request.query_params, name, -1) for name in ("low", "high"))
    return _plain_light(chain.light_block(height, (low, high) if low < height < high else None))


def _certificate_below(chain: Chain, reading: Reading, request: Request) -> Any:
    """The certificate of the block below, to which a block's header commits; no bytes with the first block."""
    height = asked.number_named(request.path_params["name"], "height")
    found = reading.explorer.light.certificate_below(height)
    return {"bytes": "" if found is None else encode(found.to_record()).hex()}


def _light_blocks(chain: Chain, reading: Reading, request: Request) -> Any:
    first = asked.number_in(request.query_params, "from", reading.explorer.held.start)
    limit = max(1, min(LIGHT_MAX, asked.number_in(request.query_params, "limit", LIGHT_MAX)))
    answer, size = list[dict[str, Any]](), 0
    for block in reading.explorer.light.between(first, first + limit - 1):
        answer.append(_plain_light(block))
        size += len(answer[-1]["bytes"]) // 2
        if size > LIGHT_BYTES_MAX:
            break
    return answer


def _plain_light(block: LightBlock) -> dict[str, Any]:
    """A light block as its one byte string: a client that reads anything else could be told anything else."""
    return {"height": block.header.height, "hash": block.header.hash.hex(), "bytes": block.encode().hex()}


def _search(chain: Chain, reading: Reading, request: Request) -> Any:
    text = request.query_params.get("q", "").strip()
    if not text:
        raise NotFound("nothing to search for: give q")
    hits = search.find(chain, reading, text[:200])
    return [{"kind": kind, "name": name, "page": f"/{chain.key}/{path}"} for kind, name, path in hits]
