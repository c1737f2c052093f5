"""Many threads at once; the same program is meant to be built with a sanitizer (see its head)."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stress.cpp")


def test_threads_do_not_disturb_each_other(sim_library, cuda_headers, tmp_path):
    # GIVEN four threads with streams and one that remaps WHEN they run THEN every value is right
    (tmp_path / "libcuda.so.1").symlink_to(sim_library.resolve())
    program = tmp_path / "stress"
    flags = ["-std=c++20", "-O1", "-isystem", cuda_headers, f"-Wl,-rpath,{tmp_path}", "-pthread"]
    command = ["g++", str(SOURCE), "-o", str(program), *flags, str(tmp_path / "libcuda.so.1")]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [str(program), "50"], env=dict(os.environ), capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "ok\n", done.stderr
