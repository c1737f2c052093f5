"""The policy against its definition."""

from hypothesis import given
from hypothesis import strategies as st
from transit_pure import Pure

frames = st.integers(0, 2**32 - 1)
candidates = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 9)), unique_by=lambda c: c[0], max_size=40
)


@given(known=candidates, count=st.integers(0, 60), order=st.randoms(use_true_random=False))
def test_oldest_leave_first(pure: Pure, known: list[tuple[int, int]], count: int, order) -> None:
    # GIVEN candidates in any order
    shuffled = list(known)
    order.shuffle(shuffled)
    # WHEN some are chosen
    chosen = pure.least_recently_touched(shuffled, count)
    # THEN they are the oldest, ties by extent, whatever the order was
    assert chosen == [e for e, _ in sorted(known, key=lambda c: (c[1], c[0]))][:count]


@given(live=frames, wanted=st.integers(0, 2**20), limit=frames)
def test_as_many_leave_as_do_not_fit(pure: Pure, live: int, wanted: int, limit: int) -> None:
    # GIVEN any demand that 32 bits can answer, WHEN what must leave is asked for
    over = max(0, live + wanted - limit)
    # THEN the rest fits, and not one more leaves
    assert pure.must_leave(live, wanted, limit) == min(over, 2**32 - 1) or over >= 2**32


@given(live=st.integers(0, 1000), wanted=st.integers(0, 1000), limit=st.integers(0, 1000))
def test_nothing_flaps(pure: Pure, live: int, wanted: int, limit: int) -> None:
    # GIVEN a demand, WHEN what must leave has left and the wanted ones have come
    leaving = pure.must_leave(live, wanted, limit)
    # THEN nothing more must leave
    if leaving <= live:
        assert pure.must_leave(live + wanted - leaving, 0, limit) == 0
