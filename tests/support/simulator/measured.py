"""Measurements of three peers in three rounds, as a run leaves them."""

from fedchain.simulator.engine.measurement import RoundMetrics, Span

ROWS = [
    RoundMetrics(round=number, height=number, virtual_s=5.0 * number, taa=0.5 + 0.1 * number, tal=1.0 / number)
    for number in (1, 2, 3)
]
TIMELINE = {
    (peer, number): Span(5.0 * number, 5.0 * number + 1, 5.0 * number + 1.2, 5.0 * number + 4, 5.0 * number + 4.2)
    for peer in range(3)
    for number in (1, 2, 3)
}
