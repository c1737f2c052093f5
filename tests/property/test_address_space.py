"""AddressSpace against a list of granules."""

from hypothesis import given
from hypothesis import strategies as st
from transit_pure import Pure, Space

BASE, GRANULE, GRANULES = 1 << 40, 512, 96

Call = tuple[str, int, int]

calls = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 20 * GRANULE), st.just(0)),
        st.tuples(st.just("take_at"), st.integers(1, 12), st.integers(0, GRANULES - 1)),
        st.tuples(st.just("give"), st.just(0), st.integers(0, 1000)),
    ),
    max_size=80,
)


def rounded(size: int) -> int:
    """In granules."""
    return max(1, -(-size // GRANULE))


class Model:
    """One cell a granule: free or taken."""

    def __init__(self) -> None:
        self.taken = [False] * GRANULES
        self.held: list[tuple[int, int]] = []  # start and count, in granules

    def best_fit(self, count: int) -> int | None:
        """Start of the lowest of the smallest free runs that fit."""
        runs, start = [], None
        for cell, taken in enumerate([*self.taken, True]):
            if taken and start is not None:
                runs.append((cell - start, start))
                start = None
            elif not taken and start is None:
                start = cell
        return min(((n, at) for n, at in runs if n >= count), default=(0, None))[1]

    def mark(self, start: int, count: int, taken: bool) -> None:
        self.taken[start : start + count] = [taken] * count


def follow(space: Space, history: list[Call]) -> list[int | None]:
    """Makes the calls on both, comparing every answer; the addresses given."""
    model, answers = Model(), []
    for kind, size, where in history:
        if kind == "take":
            expected, count = model.best_fit(rounded(size)), rounded(size)
            answers.append(space.take(size))
            assert answers[-1] == (None if expected is None else BASE + expected * GRANULE)
            if expected is None:
                continue
        elif kind == "take_at":
            expected, count = where, size
            fits = where + size <= GRANULES and not any(model.taken[where : where + size])
            assert space.take_at(BASE + where * GRANULE, size * GRANULE) == fits
            if not fits:
                continue
        else:
            if model.held:
                start, count = model.held.pop(where % len(model.held))
                space.give(BASE + start * GRANULE, count * GRANULE)
                model.mark(start, count, False)
            continue
        model.mark(expected, count, True)
        model.held.append((expected, count))
    for start, count in model.held:
        space.give(BASE + start * GRANULE, count * GRANULE)
    return answers


@given(history=calls)
def test_space_agrees_with_its_model(pure: Pure, history: list[Call]) -> None:
    # GIVEN an empty space, WHEN any calls are made
    with pure.space(BASE, GRANULES * GRANULE, GRANULE) as space:
        follow(space, history)
        # THEN every answer is the model's, and all given back is one free range again
        assert space.take(GRANULES * GRANULE) == BASE


@given(history=calls)
def test_addresses_are_a_function_of_the_calls(pure: Pure, history: list[Call]) -> None:
    # GIVEN two spaces, one of which has served and taken back other requests
    with (
        pure.space(BASE, GRANULES * GRANULE, GRANULE) as fresh,
        pure.space(BASE, GRANULES * GRANULE, GRANULE) as used,
    ):
        follow(used, list(reversed(history)))
        # WHEN both get the same calls, THEN they give the same addresses
        assert follow(used, history) == follow(fresh, history)
