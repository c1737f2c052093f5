"""Fills by rows over memory that holds tables: what lies between the rows stays."""

TABLE = """
open_device()
source, table, to = malloc(8 * MB), malloc(4 * MB), malloc(8 * MB)
fill(source, 1, 2 * MB); fill(to, 0, 2 * MB); sync(); end_setup(); next_step(); sync()
def touched(at):
    before = counters()["table_touches"]
    launch("sim_gather_by_table", to, table + at, 1, 16); sync()
    return counters()["table_touches"] - before
"""


def test_fills_by_rows_of_every_kind(run):
    # GIVEN two tables in one block WHEN rows are filled that cover one of them, by every function
    # there is, THEN only that one is forgotten
    run(
        TABLE
        + """
for bits in (8, 16, 32):
    for form in ("_v2", "_v2_ptds", "Async", "Async_ptsz"):
        name = f"cuMemsetD2D{bits}{form}"
        upload(table + 1024, [source]); upload(table + 8192, [source, source])
        assert touched(1024) == 1
        on = [None] if form.startswith("Async") else []
        getattr(api, name)(table, 4096, 0, 64 * 8 // bits, 8, *on)
        api.cuCtxSynchronize()
        assert list(read(table + 8192, 4)) == [0] * 4 and read(table + 8192 + 64, 1)[0] == 0
        assert touched(1024) == 1, name  # the block's only table
        upload(table + 1024, [0])
        before = counters()["table_touches"]
        launch("sim_fill", table, c_uint(0), 16); sync()
        assert counters()["table_touches"] == before, name
"""
    )


def test_the_table_between_the_rows_is_read(run):
    # GIVEN memory that is unmapped while nothing names it WHEN a kernel reads it through a table
    # that lies between filled rows THEN it is there
    run(
        TABLE
        + """
upload(table + 1024, [source])
api.cuMemsetD2D8_v2(table, 4096, 0, 64, 8)
launch("sim_gather_by_table", to, table + 1024, 1, 2 * MB)
expect_words(to, 2 * MB, 1)
""",
        TRANSIT_VERIFY=1,
    )


def test_no_rows_and_one_row(run):
    # GIVEN a table WHEN no row, or a single one that covers it, is filled THEN it stays, or goes
    run(
        TABLE
        + """
upload(table, [source])
api.cuMemsetD2D32_v2(table, 4096, 0, 16, 0)
assert touched(0) == 1
api.cuMemsetD2D32_v2(table, 4096, 0, 16, 1)
before = counters()["table_touches"]
launch("sim_fill", table, c_uint(0), 16); sync()
assert counters()["table_touches"] == before
"""
    )


def test_a_captured_fill_by_rows_forgets_no_table(run):
    # GIVEN a table WHEN a fill by rows over it is captured, which does not happen yet THEN kernels
    # that read the table still touch what it lists
    run(
        TABLE
        + """
upload(table, [source])
on = stream()
api.cuStreamBeginCapture_v2(on, 0)
api.cuMemsetD2D8Async(table, 4096, 0, 64, 8, on)
api.cuStreamEndCapture(on, byref(c_void_p()))
assert touched(0) == 1
"""
    )
