"""The driver fails once, somewhere: nothing is lost, and the job goes on."""

import pytest


def test_a_copy_over_a_table_fails(run):
    # GIVEN a table WHEN a copy over it is refused THEN what it lists is still touched through it
    run(
        """
open_device()
source, table, to = malloc(8 * MB), malloc(4 * MB), malloc(8 * MB)
fill(source, 1, 2 * MB); sync(); end_setup(); next_step(); sync()
upload(table, [source])
zeros = (c_uint64 * 4)()
assert lib.cuMemcpyHtoDAsync_v2(table, zeros, 32, stream()) == 2
before = counters()["table_touches"]
launch("sim_gather_by_table", to, table, 1, 2 * MB); sync()
assert counters()["table_touches"] == before + 1
expect_words(to, 16, 1)
""",
        TRANSIT_SIM_FAIL="cuMemcpyHtoDAsync:1:2",
    )


@pytest.mark.parametrize("call", [7, 8])
def test_a_polled_word_is_pinned_though_a_mapping_fails(run, call):
    # GIVEN a new block that has no frame yet WHEN its mapping fails while a stream is told to write
    # a word THEN the word's extents are pinned all the same
    run(
        """
open_device()
word = malloc(4 * MB)
fill(word, 0, MB); end_setup(); next_step(); sync()
new = malloc(4 * MB)
on = stream()
assert lib.cuStreamWriteValue32_v2(on, word, 1, 0) == 0
api.cuStreamSynchronize(on)
assert counters()["pinned_extents"] == 2
""",
        TRANSIT_SIM_FAIL=f"cuMemMap:{call}:2",
    )


@pytest.mark.parametrize("call", [1, 5, 20])
def test_an_unmapping_fails(run, call):
    # GIVEN two streams that take turns with nearly all memory WHEN one unmapping fails THEN every
    # launch gets its memory
    run(
        """
open_device()
for i, on in enumerate([stream(), stream()] * 4):
    block = malloc_async(50 * MB, on)
    fill(block, i, 50 * MB // 4, on=on)
    api.cuStreamSynchronize(on)
    expect_words(block, 1024, i)
    api.cuMemFreeAsync(block, on)
    sync()
assert counters()["drops"] > 50
""",
        TRANSIT_SIM_FAIL=f"cuMemUnmap:{call}:304",
    )


@pytest.mark.parametrize(
    "what", ["cuStreamCreate:1", "cuEventCreate:1", "cuEventCreate:4", "cuMemMap:3"]
)
def test_something_fails_once(run, what):
    # GIVEN a driver call that fails once WHEN launches need frames THEN none is refused
    run(
        """
open_device()
block = malloc(4 * MB)
for i in range(5): fill(block, i, MB)
sync()
expect_words(block, MB, 4)
""",
        TRANSIT_SIM_FAIL=f"{what}:304",
    )
