"""The end of a process: calls that come late, and children that leave."""

import pytest


def test_calls_after_the_threads_own_memory_is_gone(native):
    # GIVEN a program with an exit handler and a static object that still use the device WHEN it
    # ends THEN both get what they ask for
    done = native("exits.cpp", MALLOC_PERTURB_=165)  # what is freed is overwritten
    assert done.lines == ["main 5 5", "handler 6 6", "destructor 7 7"]
    assert done.stats.ended


@pytest.mark.parametrize("record", [None, 0], ids=["plain", "recording"])
def test_a_thread_ends_the_process(native, record):
    # GIVEN the same WHEN a thread that is not the first one calls exit THEN it is no different,
    # also while a step is recorded
    done = native("exits.cpp", "thread", MALLOC_PERTURB_=165, TRANSIT_RECORD_STEP=record)
    assert done.lines == ["thread 4 4", "handler 6 6", "destructor 7 7"]


def test_calls_while_a_thread_ends(native):
    # GIVEN threads with an object of their own that is older than what the shim keeps for them WHEN
    # it uses the device as the thread ends THEN it gets what it asks for
    done = native("exits.cpp", "threads", 100, MALLOC_PERTURB_=165)
    assert done.lines == ["thread 3 3"] * 100


def test_children_leave_while_streams_come_and_go(native):
    # GIVEN threads that make and destroy streams all the time WHEN the first thread, whose default
    # stream is in use, forks THEN every child can exit
    assert native("exits.cpp", "forks", 400, timeout=100).lines == ["400"]
