"""Merging the allocator setting into the user's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.allocator import VARIABLES, Allocator, merge, split_conf

OLD, NEW = VARIABLES


@pytest.mark.parametrize(
    ("allocator", "item"),
    [
        (Allocator.EXPANDABLE, "expandable_segments:True"),
        (Allocator.ASYNC, "backend:cudaMallocAsync"),
    ],
)
def test_both_variables_are_set(allocator: Allocator, item: str) -> None:
    assert merge(allocator, {}).variables == {OLD: item, NEW: item}


def test_native_without_a_setting_sets_nothing() -> None:
    assert merge(Allocator.NATIVE, {}).variables == {}


def test_users_keys_are_kept_and_copied_to_the_other_name() -> None:
    # GIVEN a user's setting under the old name
    users = "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]"
    # WHEN ours is merged
    setting = merge(Allocator.EXPANDABLE, {OLD: users})
    # THEN both names have both
    assert setting.variables == dict.fromkeys(VARIABLES, f"{users},expandable_segments:True")
    assert setting.conflicts == ()


def test_each_variable_keeps_its_own_setting() -> None:
    made = merge(Allocator.ASYNC, {OLD: "max_split_size_mb:1", NEW: "max_split_size_mb:2"})
    assert made.variables == {
        OLD: "max_split_size_mb:1,backend:cudaMallocAsync",
        NEW: "max_split_size_mb:2,backend:cudaMallocAsync",
    }


@pytest.mark.parametrize(
    ("allocator", "users"),
    [
        (Allocator.EXPANDABLE, "expandable_segments:False"),
        (Allocator.EXPANDABLE, "backend:cudaMallocAsync"),
        (Allocator.ASYNC, "backend:native"),
        (Allocator.NATIVE, "expandable_segments:True"),
    ],
)
def test_contradiction_is_said_and_the_user_wins(allocator: Allocator, users: str) -> None:
    setting = merge(allocator, {NEW: users})
    assert all(users in value for value in setting.variables.values())
    assert len(setting.conflicts) == 1
    assert f"--allocator {allocator}" in setting.conflicts[0]
    assert users in setting.conflicts[0]


def test_agreement_is_no_contradiction() -> None:
    setting = merge(Allocator.EXPANDABLE, {NEW: "expandable_segments:true"})
    assert setting.variables == dict.fromkeys(VARIABLES, "expandable_segments:true")
    assert setting.conflicts == ()


ITEMS = st.lists(
    st.from_regex(r"[a-z_]{3,12}:([a-z0-9]{1,6}|\[[0-9]:[0-9],[0-9]:[0-9]\])", fullmatch=True)
)


@given(ITEMS, st.sampled_from(Allocator))
def test_no_item_of_the_user_is_ever_lost(items: list[str], allocator: Allocator) -> None:
    setting = merge(allocator, {OLD: ",".join(items)})
    for value in setting.variables.values():
        assert split_conf(value)[: len(items)] == items


@given(ITEMS, st.sampled_from(Allocator))
def test_merging_twice_changes_nothing_more(items: list[str], allocator: Allocator) -> None:
    once = merge(allocator, {NEW: ",".join(items)}).variables
    assert merge(allocator, once).variables == once
