"""Make statistics files as the shim writes them (docs/formats.md)."""

from transit.stats import COUNTER, HEADER, MAGIC, NAMED, VERSION


def encode(
    counters: dict[str, int],
    named: list[tuple[str, str, int]] | None = None,
    pid: int = 4242,
    local_rank: int = 0,
    state: int = 2,
    unused_names: int = 2,
) -> bytes:
    """The bytes of one file."""
    rows = [*(named or []), *[("", "", 0)] * unused_names]
    head = HEADER.pack(MAGIC, VERSION, pid, local_rank, len(counters), len(rows), state)
    body = b"".join(COUNTER.pack(name.encode(), value) for name, value in counters.items())
    tail = b"".join(NAMED.pack(kind.encode(), name.encode(), n) for kind, name, n in rows)
    return head + body + tail
