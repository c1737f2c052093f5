"""Every argument of every probed function, against what the function itself saw."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import stub_libraries
from run_stub import trace
from transit.probes.attach import Observer
from transit.probes.recipes import Kind
from transit.probes.records import FIELDS
from transit.probes.symbols import symbol_table

Call = tuple[str, int, tuple[tuple[str, int], ...]]


def told_by_stubs(path: Path) -> list[Call]:
    calls = []
    for line in path.read_text().splitlines():
        name, result, *pairs = line.split()
        fields = {pair.partition("=")[0]: int(pair.partition("=")[2]) for pair in pairs}
        calls.append((name, int(result), tuple(sorted(fields.items()))))
    return calls


def test_the_stubs_have_every_function_of_the_table() -> None:
    # GIVEN the functions whose prototypes the tests know THEN they are the table's
    for library in stub_libraries.SONAMES:
        known = {each.name for each in stub_libraries.prototypes(library)}
        assert known == set(symbol_table().of_library(library))


@pytest.mark.bpf
def test_every_field_is_what_the_function_was_given(stub_program: Path, tmp_path: Path) -> None:
    # GIVEN a program that calls every function, with each argument another number
    table, truth = symbol_table(), tmp_path / "truth"
    with Observer() as observer:
        # WHEN it is attached, and then calls
        traced = trace(observer, [stub_program], {"STUB_TRUTH": str(truth)})
    # THEN all libraries were probed, and every call was seen as the function saw it
    assert sorted(len(each.symbols) for each in traced.probed) == sorted(
        len(table.of_library(library)) for library in ("cudart", "cuda", "nccl")
    )
    expected = [call for call in told_by_stubs(truth) if not _launches(call[0])]
    seen = [_as_call(record) for record in traced.records]
    assert seen == expected
    # AND nothing was lost, and every hit is accounted for
    assert set(traced.counts) == {row.name for row in table.rows}
    for name, count in traced.counts.items():
        assert count.hits == count.emitted + count.launches == 2, name
    # AND launches are counted with the record that follows them
    launches = Counter(name for name, _, _ in told_by_stubs(truth) if _launches(name))
    assert int(traced.records["launches"].sum()) == sum(launches.values()) - _trailing_launches(
        truth
    )


def _launches(name: str) -> bool:
    return any(row.name == name and row.kind is Kind.LAUNCH for row in symbol_table().rows)


def _trailing_launches(truth: Path) -> int:
    names = [name for name, _, _ in told_by_stubs(truth)]
    trailing = 0
    while names and _launches(names.pop()):
        trailing += 1
    return trailing


def _as_call(record: np.void) -> Call:
    symbol = symbol_table().rows[record["symbol"]]
    fields = {name: int(record[name]) for name in FIELDS if name in symbol.fields}
    return symbol.name, int(record["result"]), tuple(sorted(fields.items()))
