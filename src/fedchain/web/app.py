"""The web application: the addresses of its pages, and the headers that make every answer safe.

Answers come from threads, so that a long one does not delay others. Nothing here writes anything.
"""

import ipaddress
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fedchain
from fedchain.chain.exceptions import ChainError, NotFound, StoreCorrupt
from fedchain.chain.explorer.plain import plain_proof
from fedchain.chain.explorer.views import Recomputation
from fedchain.crypto.exceptions import CryptoError
from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.exceptions import LearningError
from fedchain.web.chains import Chain, Reading
from fedchain.web.figures.chart_files import FILE, others_in, page_file, query_of
from fedchain.web.figures.network import network_page
from fedchain.web.formats import Names, filters
from fedchain.web.interface import interface_routes
from fedchain.web.knowledge import KnowledgeReader
from fedchain.web.live import Live
from fedchain.web.pages import asked, blocks, members, overview, rounds, search
from fedchain.web.standing import standing

log = logging.getLogger("fedchain.web")

FOLDER = Path(__file__).parent

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}
"""Headers of every answer: nothing is loaded from elsewhere or runs inline, and no other site may frame or read it."""

PAGES_KEPT = 256
"""Pages that are kept until their chain changes: a page that is open in a hundred tabs is rendered once."""

KEPT_BYTES_MAX = 32 * 2**20
"""Most bytes of them."""

RECOMPUTED_KEPT = 256
"""Blocks whose recomputation is remembered; the oldest is forgotten first."""

STREAMS_MAX = 1_000
"""Most browsers that are notified of changes at the same time."""

EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
"""Headers of an answer that tells of changes as they come."""

SILENT_FOR_S = 15.0
"""Seconds without news after which a stream sends a sign of life. A page that gets none for 40 seconds says so."""

SIGN_OF_LIFE = b"event: here\ndata: still\n\n"
"""An event: pages are not told of comments."""


class Site:
    """The pages over some chains.

    Args:
        chains: the chains that are shown.
        hosts: names, beside localhost, under which browsers may ask for the site.
        streams_max: most browsers that are notified of changes at the same time.
        awaited: why there is no chain yet; empty if there is one.
    """

    def __init__(
        self, chains: Sequence[Chain], hosts: Sequence[str] = (), streams_max: int = STREAMS_MAX, *, awaited: str = ""
    ) -> None:
        self._awaited = awaited
        self.chains = {chain.key: chain for chain in chains}
        self.knowledge = KnowledgeReader()
        self.live = Live(chains, self.knowledge.work)
        self._kept: dict[str, tuple[str, bytes, int]] = {}
        self._keeping = threading.Lock()
        self._recomputed: dict[tuple[str, Hash], Recomputation] = {}
        self._recomputing = anyio.Lock()
        self._streams, self._streams_max = 0, streams_max
        self._templates = make_templates()
        self.app: ASGIApp = Guard(self._application(), frozenset(map(name_in, hosts)))
        """The application, for a server."""

    def _application(self) -> Starlette:
        shown: list[tuple[str, Callable[[Chain, Reading, Request], asked.Context]]] = [
            ("home", lambda chain, reading, request: overview.home(chain, reading, request.query_params)),
            ("blocks", lambda chain, reading, request: blocks.blocks(chain, reading, request.query_params)),
            ("block", self._block),
            ("members", lambda chain, reading, request: members.members(chain, reading, request.query_params)),
            ("member", lambda chain, reading, request: members.member(chain, reading, request.path_params["name"])),
            (
                "participation",
                lambda chain, reading, request: rounds.participation(chain, reading, request.query_params),
            ),
            ("rounds", lambda chain, reading, request: rounds.rounds(chain, reading, request.query_params)),
            ("round", lambda chain, reading, request: rounds.round_(chain, reading, request.path_params["name"])),
            ("knowledge", self._knowledge),
            ("tx", lambda chain, reading, request: blocks.transaction(chain, reading, request.path_params["name"])),
            ("proof", lambda chain, reading, request: blocks.proof(chain, reading, request.path_params["name"])),
            ("network", lambda chain, reading, request: network_page(chain)),
            ("genesis", lambda chain, reading, request: overview.genesis(chain, reading, request.query_params)),
        ]
        paths = {"home": "/{chain}/", "knowledge": "/{chain}/knowledge/{name}"}
        named = {"block", "member", "round", "tx", "proof"}
        routes: list[Any] = [
            Route("/", self._front),
            Route("/compare", self._compare),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
            Mount("/api/v1", routes=interface_routes(self.chains)),
            Route("/{chain}/block/0", self._to_genesis),
            *(
                Route(
                    paths.get(name, f"/{{chain}}/{name}" + ("/{name}" if name in named else "")), self._page(name, make)
                )
                for name, make in shown
            ),
            Route("/{chain}/knowledge", self._page("knowledge", self._knowledge)),
            Route("/{chain}/search", self._search),
            Route("/{chain}/events", self._events),
            Route("/{chain}/block/{name}/recompute", self._recompute, methods=["POST"]),
            Route("/{chain}/proof/{name}/proof.json", self._proof_file),
            Route("/{chain}/genesis.fedchain", self._genesis_file),
            Route("/proof_check.py", self._proof_check),
            Route("/{chain}", self._to_home),
        ]
        handlers: Mapping[Any, Any] = {
            ChainError: self._refused,
            CryptoError: self._refused,
            LearningError: self._refused,
            HTTPException: self._refused,
            Exception: self._failed,
        }

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.live.run)
                yield
                self.live.close()
                tasks.cancel_scope.cancel()

        return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)

    # pages

    def _page(
        self, name: str, make: Callable[[Chain, Reading, Request], asked.Context]
    ) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            chain = self._chain(request)
            version = self.live.version(chain)
            place = f"{request.url.path}?{request.url.query}"
            tag = f'"{version}"'
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers={"etag": tag})
            kept = self._kept.get(place)
            if kept is not None and kept[0] == version:
                return _html(kept[1], kept[2], tag)
            with chain.reading() as reading:
                kept = self._kept.get(place)  # the first of several that waited here has made it
                if kept is not None and kept[0] == version:
                    return _html(kept[1], kept[2], tag)
                context = make(chain, reading, request)
                if FILE in request.query_params:
                    return self._file(context, request)
                body = self._render(f"{name}.html", request, context, chain, reading)
            if version == self.live.version(chain):
                self._keep(place, (version, body, 200))
            return _html(body, 200, tag)

        return answer

    def _block(self, chain: Chain, reading: Reading, request: Request) -> asked.Context:
        context = blocks.block(chain, reading, request.path_params["name"])
        found = self._recomputed.get((chain.key, context["block"].summary.hash))
        # A content that has a row but cannot be read was altered.
        altered = {item for item in found.missing if reading.store.holds_content(item)} if found else set()
        return context | {"recomputation": found, "altered": altered}

    def _knowledge(self, chain: Chain, reading: Reading, request: Request) -> asked.Context:
        name = request.path_params.get("name", "")
        try:
            return rounds.knowledge(chain, reading, name, self.knowledge)
        except (NotFound, ChainError) as error:
            if name:
                raise
            return {"knowledge": None, "trouble": str(error)}

    def _front(self, request: Request) -> Response:
        if len(self.chains) == 1:
            return RedirectResponse(f"/{next(iter(self.chains))}/", 303)
        return _html(self._render("front.html", request, overview.front(self.chains.values())))

    def _compare(self, request: Request) -> Response:
        asked = request.query_params.getlist("chain")
        chosen = [chain for chain in self.chains.values() if not asked or chain.key in asked]
        context = overview.compare(chosen) | {"chosen": {chain.key for chain in chosen}}
        if FILE in request.query_params:
            return self._file(context, request)
        return _html(self._render("compare.html", request, context))

    def _to_home(self, request: Request) -> Response:
        return RedirectResponse(f"/{self._chain(request).key}/", 303)

    def _to_genesis(self, request: Request) -> Response:
        return RedirectResponse(f"/{self._chain(request).key}/genesis", 303)

    def _search(self, request: Request) -> Response:
        chain = self._chain(request)
        with chain.reading() as reading:
            context = search.search(chain, reading, request.query_params)
            hits = context["hits"]
            if len(hits) == 1 and hits[0][2]:
                return RedirectResponse(f"/{chain.key}/{hits[0][2]}", 303)
            return _html(self._render("search.html", request, context, chain, reading))

    async def _recompute(self, request: Request) -> Response:
        if is_of_another_site(request.headers):
            raise HTTPException(403, "another site may not ask for this")
        async with self._recomputing:  # who waits for others' blocks takes no thread from pages
            return await anyio.to_thread.run_sync(self._recompute_next, request)

    def _recompute_next(self, request: Request) -> Response:
        chain, name = self._chain(request), request.path_params["name"]
        with chain.reading() as reading:
            view = reading.explorer.block(name)
        if not view.is_final:
            raise NotFound(f"{name} is not final: the nodes that vote for it recompute it")
        found = blocks.recompute(chain, view.summary.height)
        while len(self._recomputed) >= RECOMPUTED_KEPT:
            self._recomputed.pop(next(iter(self._recomputed)), None)
        self._recomputed[chain.key, view.summary.hash] = found
        chain.recomputed += 1
        anyio.from_thread.run_sync(self.live.wake)
        return RedirectResponse(f"/{chain.key}/block/{name}#recomputed", 303)

    # files

    def _file(self, context: asked.Context, request: Request) -> Response:
        data, kind = page_file(self._templates, context, request.query_params)
        return Response(data, media_type=kind, headers=_as_file(request.query_params[FILE]))

    def _proof_file(self, request: Request) -> Response:
        with self._chain(request).reading() as reading:
            found = blocks.find_proof(reading, request.path_params["name"])
        name = f"proof-{found.merkle.leaf.hex()[:16]}.json"
        return JSONResponse(plain_proof(found), headers=_as_file(name))

    def _genesis_file(self, request: Request) -> Response:
        chain = self._chain(request)
        data = chain.genesis.encode()
        assert sha256(data) == chain.genesis.chain_id
        return Response(data, media_type="application/octet-stream", headers=_as_file("genesis.fedchain"))

    def _proof_check(self, request: Request) -> Response:
        data = (FOLDER / "proof_check.py").read_bytes()
        return Response(data, media_type="text/x-python", headers=_as_file("proof_check.py"))

    # events

    async def _events(self, request: Request) -> Response:
        chain = self._chain(request)
        if request.method == "HEAD":  # which has no body to wait for
            return Response(headers=EVENTS)
        if self._streams >= self._streams_max:
            raise HTTPException(503, f"{self._streams_max} browsers are told of changes already; reload to see them")
        self._streams += 1

        async def tell() -> AsyncIterator[bytes]:
            try:
                told = request.headers.get("last-event-id", "")
                while not self.live.is_closed:
                    version = self.live.version(chain)
                    if version != told:
                        told = version
                        yield f"id: {version}\ndata: {json.dumps({'version': version})}\n\n".encode()
                    elif not await self.live.wait(chain, version, SILENT_FOR_S):
                        yield SIGN_OF_LIFE
            finally:
                self._streams -= 1

        return StreamingResponse(tell(), headers=EVENTS)

    # what went wrong

    async def _refused(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            status, text = error.status_code, str(error.detail)
            if status == 404:
                text = "there is no such page"
        else:
            status, text = 404 if isinstance(error, NotFound | CryptoError) else 503, str(error)
        chain = self.chains.get(request.path_params.get("chain", ""))
        if isinstance(error, StoreCorrupt) and chain is not None:
            chain.note_trouble(text)
        answer = await anyio.to_thread.run_sync(self._trouble, request, status, text)
        if isinstance(error, HTTPException):
            answer.headers.update(error.headers or {})  # which methods there are instead
        return answer

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s: %s", request.url.path, error, exc_info=error)
        text = f"a defect of this program: {type(error).__name__}; the explorer's own output says more"
        return await anyio.to_thread.run_sync(self._trouble, request, 500, text)

    def _trouble(self, request: Request, status: int, text: str) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": text}, status)
        chain = self.chains.get(request.path_params.get("chain", ""))
        titles = {404: "Not found", 503: "This chain cannot be read now"}
        context = {"status": status, "text": text, "heading": titles.get(status, "This did not work")}
        context["mark"] = context["heading"]
        return _html(self._render("trouble.html", request, context, chain), status)

    # helpers

    def _chain(self, request: Request) -> Chain:
        name = request.path_params["chain"]
        if name not in self.chains:
            raise HTTPException(404)
        return self.chains[name]

    def _render(
        self,
        template: str,
        request: Request,
        context: asked.Context,
        chain: Chain | None = None,
        reading: Reading | None = None,
    ) -> bytes:
        stands = standing(chain, reading) if chain is not None and reading is not None else None
        frame = {
            "path": request.url.path,
            "question": request.query_params,
            "chain": chain,
            "chains": list(self.chains.values()),
            "names": None if chain is None else _names(chain, reading),
            "progress": None
            if reading is None or reading.is_complete
            else (reading.columns.height, reading.explorer.held),
            "version": fedchain.__version__,
            "awaited": self._awaited,
            "is_report": False,
            "mark": "finished" if chain and reading and is_over(chain, reading) else stands.mark if stands else "live",
            "standing": stands,
        }
        return self._templates.get_template(template).render(frame | context).encode()

    def _keep(self, place: str, page: tuple[str, bytes, int]) -> None:
        with self._keeping:
            self._kept.pop(place, None)
            left = KEPT_BYTES_MAX - len(page[1]) - sum(len(body) for _, body, _ in self._kept.values())
            while self._kept and (left < 0 or len(self._kept) >= PAGES_KEPT):
                _, body, _ = self._kept.pop(next(iter(self._kept)))
                left += len(body)
            if left >= 0:
                self._kept[place] = page


def is_over(chain: Chain, reading: Reading) -> bool:
    """Whether a chain will not change any more: its last round is closed, and no node runs in its folders."""
    runs = any(holder.status is not None or holder.silence for holder in chain.holders)
    return reading.explorer.state.finished and not runs


@cache
def make_templates() -> Environment:
    """The templates; they escape all values. To compile them takes half a second."""
    found = Environment(
        loader=PackageLoader("fedchain.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(filters() | {"others": others_in, "query": query_of})
    for name in found.list_templates():
        found.get_template(name)
    return found


def _html(body: bytes, status: int = 200, tag: str = "") -> Response:
    return Response(body, status, {"etag": tag} if tag else None, "text/html; charset=utf-8")


def _as_file(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


class Guard:
    """Gives every answer its headers, and refuses requests under a name that is not ours, to prevent DNS rebinding."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                own = ((name.encode(), value.encode()) for name, value in HEADERS.items())
                message["headers"] = [*message["headers"], *(item for item in own if item[0] not in given)]
            await send(message)

        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(named) != 1 or not is_own_host(named[0], self._hosts):
            shown = re.sub(r"[^\w.:\[\]-]", "?", named[0])[:100] if named else "nothing"
            text = f"asked for {shown}, which is not this explorer's name; see --allow-host\n"
            await Response(text, 421, media_type="text/plain")(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Whether another site's page sent the request, as browsers say: new ones by Sec-Fetch-Site, all by Origin."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    own = headers["host"].lower()
    return headers.get("origin", f"//{own}").lower().partition("//")[2] != own


def name_in(host: str) -> str:
    """The name in a Host header, or in an operator's words for one, as it is compared: letters have no case there."""
    return re.sub(r":\d{1,5}$", "", host).lower().rstrip(".")


def is_own_host(host: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header names us: localhost, a numeric address, which no name server can forge, or ``hosts``."""
    name = name_in(host)
    if name == "localhost" or name in hosts:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _names(chain: Chain, reading: Reading | None) -> Names:
    """Names of a chain's members; of its founders alone where nothing was read."""
    numbers = None if reading is None else reading.numbers
    return Names(chain.genesis, chain.key, is_virtual=chain.is_simulated, numbers=numbers)
