"""The ledger against a dict of blocks and a list of tables."""

from hypothesis import given
from hypothesis import strategies as st
from transit_pure import Ledger, Pure

EXTENT, EXTENTS = 2 << 20, 12
BASE, UNIT = 64 * EXTENT, EXTENT // 4
UNITS = EXTENTS * 4

Call = tuple[str, int, int]

calls = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "clear"]),
        st.integers(0, UNITS - 1),
        st.integers(1, 12),
    ),
    max_size=60,
)


def extents(blocks: dict[int, int]) -> set[int]:
    """Those under any of the blocks, given in units."""
    return {unit // 4 for start, count in blocks.items() for unit in range(start, start + count)}


def overlapped(blocks: dict[int, int], start: int, count: int) -> dict[int, int]:
    return {s: n for s, n in blocks.items() if s < start + count and start < s + n}


def check(ledger: Ledger, blocks: dict[int, int]) -> None:
    owner = {unit: s for s, n in blocks.items() for unit in range(s, s + n)}
    for unit in range(UNITS):
        expected = None if unit not in owner else BASE + owner[unit] * UNIT
        assert ledger.find(BASE + unit * UNIT) == expected
        assert ledger.find(BASE + unit * UNIT + UNIT - 1) == expected
    assert [e for e in range(EXTENTS) if ledger.live(e)] == sorted(extents(blocks))
    assert ledger.live_bytes() == sum(blocks.values()) * UNIT


@given(history=calls)
def test_blocks_and_extents_agree_with_a_dict(pure: Pure, history: list[Call]) -> None:
    # GIVEN an empty ledger
    blocks: dict[int, int] = {}
    with pure.ledger(BASE, EXTENTS, EXTENT) as ledger:
        for kind, start, count in history:
            count = min(count, UNITS - start)
            before = extents(blocks)
            # WHEN a block is added, removed, or a range is cleared
            if kind == "add":
                for gone in overlapped(blocks, start, count):
                    del blocks[gone]
                left = extents(blocks)
                blocks[start] = count
                # THEN the extents it brings to life and those that die are the model's
                born = ledger.add_block(BASE + start * UNIT, count * UNIT)
                assert born == sorted(extents(blocks) - left)
            elif kind == "remove":
                known = start in blocks
                blocks.pop(start, None)
                died = ledger.remove_block(BASE + start * UNIT)
                assert died == (sorted(before - extents(blocks)) if known else None)
            else:
                for gone in overlapped(blocks, start, count):
                    del blocks[gone]
                died = ledger.remove_blocks(BASE + start * UNIT, count * UNIT)
                assert died == sorted(before - extents(blocks))
        check(ledger, blocks)


@given(history=calls)
def test_what_is_recalled_is_what_is_there(pure: Pure, history: list[Call]) -> None:
    # GIVEN a ledger that was asked for every address after each change
    blocks: dict[int, int] = {}
    with pure.ledger(BASE, EXTENTS, EXTENT) as ledger:
        for kind, start, count in history:
            count = min(count, UNITS - start)
            # WHEN a block comes, goes, or takes the place of others
            if kind == "add":
                for gone in overlapped(blocks, start, count):
                    del blocks[gone]
                blocks[start] = count
                ledger.add_block(BASE + start * UNIT, count * UNIT)
            elif kind == "remove":
                blocks.pop(start, None)
                ledger.remove_block(BASE + start * UNIT)
            # THEN each address still means the extents of its block, twice alike
            owner = {unit: s for s, n in blocks.items() for unit in range(s, s + n)}
            for unit in range(UNITS):
                first = ledger.touch(BASE + unit * UNIT)
                again = ledger.touch(BASE + unit * UNIT)
                if unit not in owner:
                    assert first is None and again is None
                    continue
                assert first is not None and again is not None
                at = owner[unit]
                assert set(first[0]) == set(again[0]) == extents({at: blocks[at]})
                assert again[1]


tables = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "drop"]),
        st.integers(0, 63),
        st.integers(1, 12),
        st.integers(0, EXTENTS - 1),
    ),
    max_size=25,
)


def reach_always_covers(pure: Pure, history: list[tuple[str, int, int, int]], base: int) -> None:
    """No extent that an intact word may list is missed: the promise that moves rest on."""
    words: dict[int, int] = {}  # word → the extent that it lists
    with pure.ledger(BASE, EXTENTS, EXTENT) as ledger:
        ledger.add_block(BASE, EXTENT)
        for kind, start, count, extent in history:
            # WHEN words are copied over what was there
            for word in range(start, start + count):
                words.pop(word, None)
                if kind == "add":
                    words[word] = extent
            if kind == "add":
                ledger.add_table(base + 8 * start, 8 * count, extent, extent)
            else:
                ledger.drop_tables(base + 8 * start, 8 * count)
            # THEN each word that is still there reaches its extent
            for word, listed in words.items():
                assert listed in ledger.reach(base + 8 * word, 8)
            assert ledger.reach(base, 8 * 80) >= set(words.values())


# ledger.cpp: add_table replaces a longer table with the same start, and reach_of_tables looks at
# one predecessor only, so that a short table inside a long one hides what follows it.
@given(history=tables)
def test_tables_never_forget_a_word(pure: Pure, history: list[tuple[str, int, int, int]]) -> None:
    reach_always_covers(pure, history, BASE)


@given(history=tables)
def test_foreign_tables_never_forget_a_word(
    pure: Pure, history: list[tuple[str, int, int, int]]
) -> None:
    reach_always_covers(pure, history, 4096)


@given(
    places=st.lists(st.integers(0, 31), unique=True, max_size=12),
    dropped=st.tuples(st.integers(0, 31), st.integers(1, 32)),
)
def test_separate_tables_reach_until_overwritten(
    pure: Pure, places: list[int], dropped: tuple[int, int]
) -> None:
    # GIVEN tables that do not overlap, the one in slot n listing extent n modulo EXTENTS
    first, count = dropped
    with pure.ledger(BASE, EXTENTS, EXTENT) as ledger:
        for place in places:
            ledger.add_table(4096 + place * 64, 64, place % EXTENTS, place % EXTENTS)
        # WHEN a range is overwritten
        gone = [p for p in places if first <= p < first + count]
        assert ledger.drop_tables(4096 + first * 64, count * 64) == len(gone)
        # THEN exactly the tables outside it still reach
        for place in range(32):
            kept = place in places and place not in gone
            assert ledger.reach(4096 + place * 64 + 8, 8) == ({place % EXTENTS} if kept else set())
