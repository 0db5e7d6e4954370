"""Numbers, sizes and times as texts for people. Pure."""

from datetime import UTC, datetime, timedelta

number_text = "{:,}".format


def size_text(size: int) -> str:
    """A size in bytes, with the unit that suits it: 494 bytes, 12.3 kB, 1.0 GB."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size:,} bytes"
    units = ("kB", "MB", "GB", "TB", "PB", "EB")
    power = next((it for it in range(1, len(units)) if size < 1000 ** (it + 1)), len(units))
    return f"{size / 1000**power:,.1f} {units[power - 1]}"


def count_text(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def age_text(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))  # the store's clock may be ahead of this machine's
    for unit, length_s, enough in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < length_s * enough:
            return f"{seconds // length_s} {unit}"
    return f"{seconds // 86400} days"


def time_text(at: datetime) -> str:
    # Rounded up, so that --as-of with this time includes what happened then.
    whole = at.astimezone(UTC) + timedelta(microseconds=-at.microsecond % 1_000_000)
    return f"{whole:%Y-%m-%d %H:%M:%S}Z"
