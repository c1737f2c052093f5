"""Kernel names for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit import names

FLASH = (
    "_ZN13pytorch_flash25flash_bwd_dot_do_o_kernelILb0E23Flash_bwd_kernel_traitsILi128ELi64ELi128E"
    "Li8ELi4ELi2ELi2ELb0ELb0EN7cutlass10bfloat16_tE19Flash_kernel_traitsILi128ELi64ELi128ELi8ES3_"
    "EEEEvNS_16Flash_bwd_paramsE"
)
EXPECTED = {
    FLASH: "pytorch_flash::flash_bwd_dot_do_o_kernel",
    FLASH[:90]: "pytorch_flash::flash_bwd_dot_do_o_kernel",  # cut, as long names are in the file
    "_ZN2at6native12_GLOBAL__N_119some_reduction_implIfEEvPT_": "at::native::some_reduction_impl",
    "_ZN3fooclEi": "foo::operator()",
    "_ZNK3foo3barEv": "foo::bar",
    "_Z5scalePfi": "scale",
    "_Znonsense": "_Znonsense",
    "nvjet_tst_128x256": "nvjet_tst_128x256",
    "NCCL registration (a reason)": "NCCL registration (a reason)",
    "a" * 70: "a" * 59 + "…",
    f"_ZN40{'n' * 40}30{'f' * 30}Ev": "f" * 30,
}


@pytest.mark.parametrize(("mangled", "readable"), EXPECTED.items())
def test_names_are_short_and_readable(mangled: str, readable: str) -> None:
    assert names.short(mangled) == readable


def test_without_the_cxx_library_plain_words_are_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a machine without libstdc++
    monkeypatch.setattr(names, "_libraries", lambda: None)
    # THEN namespaces and name are there
    assert names.short(FLASH) == "pytorch_flash::flash_bwd_dot_do_o_kernel"
    assert names.short("_ZNK3foo3barEv") == "_ZNK3foo3barEv"


@given(st.text(max_size=300).map(lambda text: "_ZN" + text))
def test_no_name_is_too_long_or_fails(name: str) -> None:
    assert 0 < len(names.short(name.replace("\0", "?"))) <= names.MAX_COLUMNS
