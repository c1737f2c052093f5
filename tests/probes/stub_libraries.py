"""Libraries with the real names and prototypes of CUDA's and NCCL's functions, and nothing in them.

Where an argument lies is the compiler's business here and the symbol table's there, so that the two
can be compared: a stub writes what it was given, by parameter name, into a truth log.
"""

import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SONAMES: Final = {"cudart": "libcudart.so.13", "cuda": "libcuda.so.1", "nccl": "libnccl.so.2"}
_RESULTS: Final = {"cudart": "cudaError_t", "cuda": "CUresult", "nccl": "int"}
_LINE: Final = re.compile(r"(\w+)\((.*?)\)\s*(.*)")
_PROLOGUE: Final = """
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
struct ncclUniqueId { unsigned long long words[16]; };
typedef struct ncclComm* ncclComm_t;
enum ncclDataType_t : int {};
enum ncclRedOp_t : int {};
typedef unsigned long long word_t;
template <class T> word_t word(T value) {
    word_t out = 0;
    memcpy(&out, &value, sizeof value < 8 ? sizeof value : 8);
    return out;
}
"""
_STUB_PROLOGUE: Final = """
static word_t new_word() { static word_t next = 0x7f1122334400; return next += 0x1001; }
static int outcome() {
    const char* fail = getenv("STUB_FAILS");
    return fail && *fail == '1' ? 2 : 0;
}
static FILE* truth() {
    static FILE* file = fopen(getenv("STUB_TRUTH"), "a");
    return file;
}
"""


@dataclass(frozen=True, slots=True)
class Prototype:
    """A function, its parameters as (type, name), and what each of a record's fields should be."""

    library: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, str], ...]

    def declaration(self) -> str:
        """The C++ declaration, without semicolon."""
        parameters = ", ".join(f"{kind} {name}" for kind, name in self.parameters)
        return f"{_RESULTS[self.library]} {self.name}({parameters})"


def prototypes(library: str) -> list[Prototype]:
    """Of one library, from its file here."""
    found = []
    for line in (HERE / f"prototypes_{library}.txt").read_text().splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, inside, pairs = match.groups()
        parameters = []
        for each in filter(None, inside.split(", ")):
            kind, _, parameter = each.rpartition(" ")
            parameters.append((kind, parameter))
        fields = [(pair.partition("=")[0], pair.partition("=")[2]) for pair in pairs.split()]
        found.append(Prototype(library, name, tuple(parameters), tuple(fields)))
    return found


def _stub(prototype: Prototype) -> Iterator[str]:
    yield f'extern "C" {prototype.declaration()} {{'
    yield "    const int result = outcome();"
    kinds = dict((name, kind) for kind, name in prototype.parameters)
    for _, value in prototype.fields:
        if value.startswith("*"):
            size = 4 if kinds[value[1:]] == "float*" else 8
            yield f"    {{ word_t made = new_word(); memcpy((void*){value[1:]}, &made, {size}); }}"
    shown = " ".join(f"{field}=%llu" for field, _ in prototype.fields)
    values = "".join(
        f", result && '{value[0]}' == '*' ? 0 : word({value})" for _, value in prototype.fields
    )
    yield f'    fprintf(truth(), "{prototype.name} %d {shown}\\n", result{values});'
    yield "    fflush(truth());"
    yield f"    return ({_RESULTS[prototype.library]})result;"
    yield "}"


def _undefine(all_of: list[Prototype]) -> str:
    return "".join(f"#undef {each.name}\n" for each in all_of)


def _argument(kind: str, chosen: random.Random) -> str:
    if kind == "dim3":
        return f"dim3({chosen.randrange(1, 999)}, {chosen.randrange(1, 999)}, 1)"
    if kind == "ncclUniqueId":
        return f"ncclUniqueId{{{{{chosen.getrandbits(63)}ull}}}}"
    if kind.endswith(("Config*", "Config_t*", "Prop*")):
        return f"({kind})noise"
    if kind.endswith("**") or kind in (
        "size_t*", "CUdeviceptr*", "float*", "ncclComm_t*", "CUmemGenericAllocationHandle*",
    ):  # fmt: skip
        return f"({kind})&slots[next_slot++ % 8]"
    if kind == "int":
        return f"(int){chosen.getrandbits(32) - 2**31}"
    return f"({kind}){chosen.getrandbits(47)}ull"


def _main(all_of: list[Prototype], seed: int) -> Iterator[str]:
    chosen = random.Random(seed)
    for each in all_of:
        yield f'extern "C" {each.declaration()};'
    yield "static word_t slots[8];"
    yield "static unsigned next_slot;"
    yield "alignas(16) static unsigned char noise[512];"
    yield "int main() {"
    yield "    srand(7); for (auto& byte : noise) byte = (unsigned char)rand();"
    yield '    puts("ready"); fflush(stdout); getchar();'
    for fails in (0, 1):
        yield f'    setenv("STUB_FAILS", "{fails}", 1);'
        for each in all_of:
            arguments = ", ".join(_argument(kind, chosen) for kind, _ in each.parameters)
            yield f"    {each.name}({arguments});"
    yield '    puts("done"); fflush(stdout); getchar();'
    yield "}"


def build(folder: Path, include: str, seed: int = 1) -> Path:
    """The three libraries and a program that calls every function of them twice; its path."""
    all_of = [each for library in SONAMES for each in prototypes(library)]
    compile_ = ["g++", "-std=c++20", "-O1", "-w", "-fno-semantic-interposition", f"-I{include}"]
    for library, soname in SONAMES.items():
        ours = prototypes(library)
        lines = [_PROLOGUE, _undefine(ours), _STUB_PROLOGUE]
        lines += [line for each in ours for line in _stub(each)]
        source = folder / f"{library}.cpp"
        source.write_text("\n".join(lines))
        output = ["-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", folder / soname]
        subprocess.run([*compile_, *output, source], check=True)
    program = folder / "calls"
    source = folder / "calls.cpp"
    source.write_text("\n".join([_PROLOGUE, _undefine(all_of), *_main(all_of, seed)]))
    libraries = [folder / soname for soname in SONAMES.values()]
    subprocess.run(
        [*compile_, "-o", program, source, *libraries, f"-Wl,-rpath,{folder}"], check=True
    )
    return program


def build_scenarios(folder: Path) -> Path:
    """scenarios.cpp: the program, and its libraries beside it."""
    compile_ = ["g++", "-std=c++20", "-O1", "-fno-optimize-sibling-calls", "-Wall", "-Wextra"]
    source = HERE / "scenarios.cpp"
    built: list[Path] = []
    for library in ("cuda", "cudart", "nccl"):
        target = folder / SONAMES[library]
        flags = ["-shared", "-fPIC", f"-D{library.upper()}", f"-Wl,-soname,{target.name}"]
        flags.append(f"-Wl,-rpath,{folder}")
        subprocess.run([*compile_, *flags, "-o", target, source, *built], check=True)
        built.append(target)
    program = folder / "scenarios"
    subprocess.run(
        [*compile_, "-o", program, source, *built, f"-Wl,-rpath,{folder}", "-pthread"], check=True
    )
    return program
