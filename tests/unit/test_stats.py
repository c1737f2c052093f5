"""The decoder of statistics files: golden bytes, and anything at all."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stats_files import encode

from transit.stats import (
    COUNTER,
    HEADER,
    NAMED,
    MalformedStats,
    NamedCount,
    ProcessStats,
    decode,
    read_file,
    read_folder,
)

# Written out by hand from docs/formats.md: 2 counters, 2 name slots of which one is unused.
GOLDEN = (
    b"TRANSITS" + bytes([1, 0, 0, 0]) + bytes([0x39, 0x30, 0, 0]) + bytes([3, 0, 0, 0])
    + bytes([2, 0, 0, 0]) + bytes([2, 0, 0, 0]) + bytes([2, 0, 0, 0])
    + b"offloads".ljust(56, b"\0") + bytes([17, 0, 0, 0, 0, 0, 0, 0])
    + b"hbm_peak_bytes".ljust(56, b"\0") + bytes([0, 0, 0, 0, 1, 0, 0, 0])
    + b"pinned".ljust(16, b"\0") + b"nccl".ljust(232, b"\0") + bytes([5, 0, 0, 0, 0, 0, 0, 0])
    + bytes(256)
)  # fmt: skip


def test_golden_bytes() -> None:
    assert decode(GOLDEN) == ProcessStats(
        pid=12345,
        local_rank=3,
        ended=True,
        counters={"offloads": 17, "hbm_peak_bytes": 2**32},
        named=(NamedCount("pinned", "nccl", 5),),
    )


def test_sizes_are_those_of_the_format() -> None:
    assert (HEADER.size, COUNTER.size, NAMED.size) == (32, 64, 256)


NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@given(
    st.dictionaries(NAMES, st.integers(0, 2**64 - 1), max_size=8),
    st.lists(st.tuples(st.sampled_from(["pinned", "unknown"]), NAMES, st.integers(0, 2**64 - 1))),
    st.integers(0, 2**32 - 1),
)
def test_round_trip(counters: dict[str, int], named: list[tuple[str, str, int]], pid: int) -> None:
    decoded = decode(encode(counters, named, pid=pid))
    assert decoded.counters == counters
    assert [(each.kind, each.name, each.count) for each in decoded.named] == named
    assert decoded.pid == pid


@given(st.binary(max_size=600))
def test_noise_is_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(MalformedStats):
        decode(data)


@given(st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    # GIVEN a file with some bytes changed and a cut end
    damaged = bytearray(GOLDEN)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    # WHEN it is decoded THEN nothing but the sentence is raised, and nothing unprintable is left
    try:
        decoded = decode(bytes(damaged[:cut]))
    except MalformedStats:
        return
    texts = [*decoded.counters, *(each.kind + each.name for each in decoded.named)]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("offset", "value", "sentence"),
    [
        (0, 0, "TRANSITS"),
        (8, 2, "version 2"),
        (20, 0xFFFFFFFF, "too many"),
        (24, 0xFFFFFFFF, "too many"),
        (24, 60000, "cut short"),
    ],
)
def test_bad_headers_say_what_is_wrong(offset: int, value: int, sentence: str) -> None:
    damaged = bytearray(GOLDEN)
    struct.pack_into("<I", damaged, offset, value)
    with pytest.raises(MalformedStats, match=sentence):
        decode(bytes(damaged))


def test_escape_sequences_cannot_reach_the_terminal() -> None:
    decoded = decode(encode({}, [("warning", "\x1b[2Jboo\nline", 1)]))
    assert decoded.named[0].name == "?[2Jboo?line"


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    # GIVEN a link to a good file and a pipe
    (tmp_path / "good").write_bytes(GOLDEN)
    (tmp_path / "1.stats").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "2.stats")
    # WHEN they are read THEN both are refused, without waiting
    for name in ("1.stats", "2.stats"):
        with pytest.raises(MalformedStats):
            read_file(tmp_path / name)


def test_folder_is_sorted_by_rank_and_names_what_it_skipped(tmp_path: Path) -> None:
    (tmp_path / "7.stats").write_bytes(encode({}, pid=7, local_rank=1))
    (tmp_path / "9.stats").write_bytes(encode({}, pid=9, local_rank=0))
    (tmp_path / "8.stats").write_bytes(b"short")
    (tmp_path / "9.step").write_bytes(b"not ours")
    found, problems = read_folder(tmp_path)
    assert [each.pid for each in found] == [9, 7]
    assert problems == [
        "statistics file 8.stats is ignored: it has 5 bytes, a header has 32",
    ]
