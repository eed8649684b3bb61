"""Metrics for Prometheus, on an address that the operator chose; without one there are none."""

from collections.abc import Iterator
from typing import Protocol

import anyio
from anyio.abc import SocketStream
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fedchain.node.config import NodeConfigError
from fedchain.node.service import Service

REQUEST_SIZE_MAX = 8_192
"""Bytes of a request; whatever comes after is not read."""

REQUEST_TIMEOUT_S = 5.0
"""How long one request may take, its answer included."""


class Traffic(Protocol):
    """What a network counts."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    """Messages that did not fit into a queue, or came over a peer's budget."""


async def answer_metrics(place: str, service: Service, traffic: Traffic) -> None:
    """Serve metrics on ``place`` (host:port) until cancelled.

    Each scrape is answered on the node's own loop: nobody reads its state while it changes.

    Raises:
        NodeConfigError: the address is malformed, in use, or not ours.
    """
    host, port = _parse(place)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(service, traffic))

    async def answer(stream: SocketStream) -> None:
        try:
            with anyio.move_on_after(REQUEST_TIMEOUT_S):
                async with stream:
                    await stream.send(_response(await _read_request(stream), registry))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            return  # whoever asked did not wait for the answer

    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        raise NodeConfigError(f"metrics cannot be served on {place}: {error.strerror or error}") from None
    async with listener:
        await listener.serve(answer)


class NodeCollector:
    """Reads a node's numbers when they are asked for."""

    def __init__(self, service: Service, traffic: Traffic) -> None:
        self._service, self._traffic = service, traffic

    def collect(self) -> Iterator[Metric]:
        """One metric after the other."""
        status, activity, traffic = self._service.status(), self._service.activity, self._traffic
        yield GaugeMetricFamily("fedchain_head_height", "Height of the head.", status["height"])
        yield GaugeMetricFamily("fedchain_round", "Round that is open.", status["round"])
        yield GaugeMetricFamily("fedchain_peers", "Connected peers.", len(status["peers"]))
        yield GaugeMetricFamily("fedchain_finished", "1 once the last round is closed.", float(status["finished"]))
        if activity.accuracy is not None:
            text = "Fraction of the peer's own test set that its model gets right."
            yield GaugeMetricFamily("fedchain_accuracy", text, activity.accuracy)
        yield CounterMetricFamily(
            "fedchain_validation_seconds", "Time spent in the state machine.", activity.validation_s
        )
        yield CounterMetricFamily("fedchain_training_seconds", "Time spent training.", activity.training_s)
        yield CounterMetricFamily("fedchain_mining_seconds", "Time spent searching nonces.", activity.mining_s())
        messages = CounterMetricFamily("fedchain_messages", "Messages.", labels=["direction"])
        messages.add_metric(["in"], traffic.messages_in)
        messages.add_metric(["out"], traffic.messages_out)
        yield messages
        size = CounterMetricFamily("fedchain_message_bytes", "Bytes of messages.", labels=["direction"])
        size.add_metric(["in"], traffic.bytes_in)
        size.add_metric(["out"], traffic.bytes_out)
        yield size
        yield CounterMetricFamily("fedchain_messages_dropped", "Messages beyond a limit.", traffic.dropped)
        refused = CounterMetricFamily("fedchain_refused", "What was received and not taken.", labels=["error"])
        for name, count in sorted(activity.refused.items()):
            refused.add_metric([name], count)
        yield refused


async def _read_request(stream: SocketStream) -> bytes:
    """The request line; the header is read to its end, lest the connection be reset before the answer arrives."""
    request = b""
    while b"\r\n\r\n" not in request and len(request) < REQUEST_SIZE_MAX:
        request += await stream.receive(REQUEST_SIZE_MAX)
    return request.split(b"\r\n", 1)[0]


def _response(request: bytes, registry: CollectorRegistry) -> bytes:
    if request.split(b" ")[:2] == [b"GET", b"/metrics"]:
        status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
    else:
        status, kind, body = "404 Not Found", "text/plain", b"GET /metrics is all there is\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _parse(place: str) -> tuple[str, int]:
    host, separator, port = place.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise NodeConfigError(f"metrics is {place!r}, which is not of the form HOST:PORT")
    return host.strip("[]"), int(port)
