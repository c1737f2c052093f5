"""PyTorch's refusals under cudaMallocAsync, told by the function that PyTorch throws them with."""

import subprocess
import sys
from pathlib import Path

import pytest

LIBC10 = """
#include <stdexcept>
#include <string>
namespace c10::detail {
[[noreturn]] __attribute__((noinline)) void torchCheckFail(
        const char*, const char*, unsigned, const char* message) {
    throw std::runtime_error(message);
}
[[noreturn]] __attribute__((noinline)) void torchCheckFail(
        const char*, const char*, unsigned, const std::string& message) {
    throw std::runtime_error(message);
}
}
"""
CALLER = """
#include <cstdio>
#include <stdexcept>
#include <string>
namespace c10::detail {
[[noreturn]] void torchCheckFail(const char*, const char*, unsigned, const char*);
[[noreturn]] void torchCheckFail(const char*, const char*, unsigned, const std::string&);
}
extern "C" void check(const char* message, int as_string) {
    try {
        if (as_string) c10::detail::torchCheckFail("f", "f.cpp", 1, std::string(message));
        c10::detail::torchCheckFail("f", "f.cpp", 1, message);
    } catch (const std::runtime_error& error) {
        std::puts(error.what());
    }
}
"""
UNSUPPORTED = "cudaMallocAsync does not yet support shareIpcHandle. If you need it, file an issue."
SNAPSHOT = "Calling snapshot with backend:cudaMallocAsync is not meaningful."


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A library that throws as PyTorch's do, and the one that it gets the function from."""
    folder = tmp_path_factory.mktemp("torch")
    flags = ["g++", "-std=c++20", "-shared", "-fPIC", "-x", "c++", "-", f"-L{folder}"]
    for name, source, link in (("libc10.so", LIBC10, []), ("libcaller.so", CALLER, ["-lc10"])):
        command = [*flags, "-o", folder / name, f"-Wl,-soname,{name},-rpath,{folder}", *link]
        subprocess.run(command, input=source.encode(), check=True)
    return folder / "libcaller.so"


@pytest.mark.parametrize("as_string", [0, 1])
@pytest.mark.parametrize(
    ("message", "name"),
    [(UNSUPPORTED, "shareIpcHandle"), (SNAPSHOT, "snapshot"), ("Expected a tensor", None)],
)
def test_refusals_are_noted_and_thrown_as_they_were(settings, caller, as_string, message, name):
    # GIVEN a library like PyTorch's, loaded privately, as PyTorch's are
    environment = settings()
    code = (
        f"import ctypes, os; call = ctypes.CDLL({str(caller)!r}, mode=os.RTLD_LOCAL).check;"
        f"call({message.encode()!r}, {as_string})"
    )
    # WHEN it fails a check
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    # THEN the exception arrives unchanged, and a refusal is noted
    assert (done.returncode, done.stdout) == (0, message + "\n"), done.stderr
    found = Path(environment["TRANSIT_RUN_DIR"]).glob("*.refused")
    assert [path.read_text() for path in found] == ([name] if name else [])
