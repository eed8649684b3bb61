"""Times, sizes and texts as people read them, in tables and on pages alike."""

DATE_MS_MAX = 250_000_000_000_000
"""No date is written for the year 9892 and later: voters with wrong clocks can give a block such a time."""

LONG_MS = 900_000
"""From a quarter of an hour on, times are shown as hours, minutes and seconds."""


def duration(time_ms: int) -> str:
    """Tenths of a second below a quarter of an hour, then hours, minutes and seconds."""
    if abs(time_ms) < LONG_MS:
        return f"{time_ms / 1000:.1f} s"
    minutes, seconds = divmod(abs(time_ms) // 1000, 60)
    days, hours = divmod(minutes // 60, 24)
    sign = "-" if time_ms < 0 else ""
    return sign + (f"{days} d " if days else "") + f"{hours}:{minutes % 60:02}:{seconds:02}"


def signed(time_ms: int) -> str:
    """The same with its sign, also where it is +: how long after a moment another one was."""
    return duration(time_ms) if time_ms < 0 else f"+{duration(time_ms)}"


def size(size_bytes: int) -> str:
    """Bytes in the largest unit that gives at least 1."""
    count, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while count >= 1024 and unit != "GiB":
        count, unit = count / 1024, next(units)
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
