"""Metrics for Prometheus, and health and readiness of the node, on an address that the operator chose."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import anyio
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

import fedchain
from fedchain.network.ports import REASONS
from fedchain.node.config import NodeConfigError, NodeFailed
from fedchain.node.operating.clients import answer_clients
from fedchain.node.operating.preflight import parse_metrics
from fedchain.node.operating.standing import standstill_text
from fedchain.node.shell.service import Service

PATHS = "/metrics, /health and /ready are all there is\n"


class Traffic(Protocol):
    """Counters of a network."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    """Messages that did not fit into a queue, or exceeded a peer's budget."""


class CountingNetwork(Protocol):
    """A network that counts its traffic."""

    @property
    def counters(self) -> Traffic:
        """Its traffic so far."""

    def bans(self) -> Sequence[object]:
        """The bans in force."""


async def answer_metrics(place: str, service: Service, network: CountingNetwork) -> None:
    """Serve metrics on ``place`` (host:port) until cancelled.

    Each scrape is answered on the node's own loop, so its state cannot change meanwhile.

    Raises:
        NodeConfigError: the address is malformed, or refused.
        NodeFailed: it is in use, or not ours now.
    """
    host, port = parse_metrics(place)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(service, network))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)

    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        # As the check before a start has it, which another process may have passed at the same time.
        kind = NodeFailed if error.errno in REASONS else NodeConfigError
        raise kind(f"metrics cannot be served on {place}: {REASONS.get(error.errno or 0, error.strerror)}") from None
    # The header is read to its end, or the connection might be reset before the answer arrives.
    await answer_clients(listener.listeners, b"\r\n\r\n", lambda request: _response(request, registry, service))


class NodeCollector:
    """Reads a node's numbers when they are asked for."""

    def __init__(self, service: Service, network: CountingNetwork) -> None:
        self._service, self._counting = service, network
        self._build = _build()  # what runs: a package that is replaced later is not imported before the next start

    def collect(self) -> Iterator[Metric]:
        """One metric after the other."""
        yield InfoMetricFamily("fedchain_build", "What is running.", self._build)
        yield from self._chain()
        yield from self._work()
        yield from self._network()

    def _chain(self) -> Iterator[Metric]:
        """Head, electors and quorum."""
        now = self._service.status()
        yield GaugeMetricFamily("fedchain_head_height", "Height of the head.", now["height"])
        moved_s_ago = now["head_age_s"]
        yield GaugeMetricFamily(
            "fedchain_head_age_seconds",
            "Time since this process saw the head move; since it started, as long as it has seen no move.",
            self._service.activity.running_s() if moved_s_ago is None else moved_s_ago,
        )
        yield GaugeMetricFamily("fedchain_round", "Round that is open.", now["round"])
        yield GaugeMetricFamily("fedchain_finished", "1 once the last round is closed.", float(now["finished"]))
        yield GaugeMetricFamily("fedchain_electors", "Members that vote on the next block.", now["electors"])
        yield GaugeMetricFamily("fedchain_elector", "1 if this peer is one of them.", float(now["elector"]))
        text = "0 if this peer counts, and the newest block for which it owed a post lacks it."
        yield GaugeMetricFamily("fedchain_post_counted", text, float(not now["not_counted"]))
        yield GaugeMetricFamily("fedchain_quorum", "Votes that make a block final.", now["quorum"])
        missing = len(now["electors_missing"])
        yield GaugeMetricFamily("fedchain_electors_missing", "Electors that are not connected.", missing)
        reachable = float(now["quorum_reachable"])
        yield GaugeMetricFamily("fedchain_quorum_reachable", "1 if a quorum is connected.", reachable)
        text = "Time since the federation stands still: too few members are connected; 0 while it goes on."
        yield GaugeMetricFamily("fedchain_standstill_seconds", text, self._service.activity.standing_s())
        if now["aggregator"]:
            is_aggregator, text = now["aggregator"] == now["address"], "1 if this peer aggregates the open round."
            yield GaugeMetricFamily("fedchain_aggregator", text, float(is_aggregator))
            text = "1 if the aggregator of the open round is connected."
            yield GaugeMetricFamily("fedchain_aggregator_reachable", text, float(_reaches_aggregator(now)))
        text = "1 while the method's own code fails on what came for the open height."
        yield GaugeMetricFamily("fedchain_method_failing", text, float(bool(now["method_fails"])))
        yield GaugeMetricFamily("fedchain_attempt", "Attempt to decide the open height, from 0.", now["attempt"])
        yield GaugeMetricFamily("fedchain_convicted", "Members convicted of a crime.", len(now["convicted"]))
        yield GaugeMetricFamily(
            "fedchain_silent", "1 while this peer casts no vote, or says nothing at all.", now["silent"]
        )
        behind = max(0, now["catching_up_to"] - now["height"])
        yield GaugeMetricFamily("fedchain_blocks_behind", "Blocks that others say they have.", behind)
        offsets = GaugeMetricFamily(
            "fedchain_clock_offset_seconds",
            "This peer's clock, and each that is off, against the median of all voters.",
            labels=["member"],
        )
        for member, offset_ms in sorted({now["address"]: now["clock_offset_ms"], **now["clocks_off"]}.items()):
            offsets.add_metric([member], offset_ms / 1000)
        yield offsets

    def _work(self) -> Iterator[Metric]:
        """Computations and storage of this peer."""
        activity = self._service.activity
        if activity.accuracy is not None:
            text = "Fraction of the peer's own test set that its model gets right."
            yield GaugeMetricFamily("fedchain_accuracy", text, activity.accuracy)
        yield CounterMetricFamily(
            "fedchain_validation_seconds", "Time spent in the state machine.", activity.validation_s
        )
        text = "Time that training took once it was due; what was trained ahead is not in it."
        yield CounterMetricFamily("fedchain_training_seconds", text, activity.training_s)
        text = "Contributions that were lost to a fault."
        yield CounterMetricFamily("fedchain_training_failures", text, activity.training_failures)
        yield CounterMetricFamily("fedchain_mining_seconds", "Time spent searching nonces.", activity.mining_s())
        size = self._service.store_size_bytes()
        text = "What the data folder's chain takes on disk, without the database's log."
        yield GaugeMetricFamily("fedchain_store_bytes", text, size)
        refused = CounterMetricFamily("fedchain_refused", "What was received and not taken.", labels=["reason"])
        for name, count in sorted(activity.refused.items()):
            refused.add_metric([name], count)
        yield refused

    def _network(self) -> Iterator[Metric]:
        """Messages, peers and bans."""
        traffic = self._counting.counters
        yield GaugeMetricFamily("fedchain_peers", "Connected peers.", len(self._service.peers))
        yield GaugeMetricFamily("fedchain_bans", "Members that are kept out now.", len(self._counting.bans()))
        text = "Messages that came, and own ones that went out; gossip once, however many neighbours it has."
        messages = CounterMetricFamily("fedchain_messages", text, labels=["direction"])
        messages.add_metric(["in"], traffic.messages_in)
        messages.add_metric(["out"], traffic.messages_out)
        yield messages
        text = "Bytes of these messages; connections carry several times as many."
        size = CounterMetricFamily("fedchain_message_bytes", text, labels=["direction"])
        size.add_metric(["in"], traffic.bytes_in)
        size.add_metric(["out"], traffic.bytes_out)
        yield size
        text = "Messages beyond a limit, or for a member that was gone."
        yield CounterMetricFamily("fedchain_messages_dropped", text, traffic.dropped)


def _response(request: bytes, registry: CollectorRegistry, service: Service) -> bytes:
    match request.split(b"\r\n", 1)[0].split(b" ")[:2]:
        case [b"GET", b"/metrics"]:
            return _http("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))
        case [b"GET", b"/health"]:  # it answers, so its loop runs
            return _http("200 OK", "application/json", json.dumps({"alive": True}).encode())
        case [b"GET", b"/ready"]:
            ready, why = _readiness(service.status())
            body = json.dumps({"ready": ready, "why": why}).encode()
            return _http("200 OK" if ready else "503 Service Unavailable", "application/json", body)
        case _:
            return _http("404 Not Found", "text/plain", f"GET {PATHS}".encode())


def _readiness(now: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether this peer takes part, and the reason."""
    if now["finished"]:
        return True, "the federation has finished"
    if now["slow_write_s"]:
        return False, f"it sends nothing: its disk has not finished a write for {now['slow_write_s']:.0f} s"
    if now["silent"]:
        return False, f"it does not vote, and waits for {now['waiting_for']}"
    if now["conflict"]:
        return False, f"two blocks of height {now['conflict']['height']} are certified, and it joins neither chain"
    if not now["counts"]:
        return False, f"it does not count, and waits for {now['waiting_for']}"
    if now["gathers"]:
        return False, f"it posts nothing, and waits for {now['waiting_for']}"
    if now["catching_up_to"]:
        return False, f"it lacks the blocks up to height {now['catching_up_to']}"
    if now["failing"]:
        return False, f"it cannot train, {now['failing']}"
    if now["stands"]:
        return False, f"the federation stands still: {standstill_text(now['stands'], now['numbers'])}"
    return True, "it takes part"


def _reaches_aggregator(now: Mapping[str, Any]) -> bool:
    """Whether this peer is connected to the aggregator of the open round, or is the aggregator."""
    return now["aggregator"] in (now["address"], *now["peers"])


def _http(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _build() -> dict[str, str]:
    """Versions of the program and of the packages that results depend on."""
    found = {"version": fedchain.__version__}
    for package in ("numpy", "torch", "libp2p"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
