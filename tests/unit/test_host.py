"""What is read from /proc and /sys, on made-up trees."""

from pathlib import Path

import pytest

from transit import host

MEMINFO = "MemTotal:       1048576 kB\nMemAvailable:    524288 kB\nHugePages_Total:       0\n"


def make_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_cgroup_v2_tightest_ancestor_counts(tmp_path: Path) -> None:
    # GIVEN a cgroup without a limit inside of one with 512 MiB
    root = make_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/job\n",
            "sys/fs/cgroup/pod/job/memory.max": "max\n",
            "sys/fs/cgroup/pod/job/memory.current": "7\n",
            "sys/fs/cgroup/pod/memory.max": f"{512 * 2**20}\n",
            "sys/fs/cgroup/pod/memory.current": f"{200 * 2**20}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {100 * 2**20}\n",
        },
    )
    # WHEN the host is read
    memory = host.read_host_memory(root)
    # THEN the outer limit holds, and page cache that can go does not count
    assert memory.total_bytes == 2**30
    assert memory.cgroup_limit_bytes == 512 * 2**20
    assert memory.cgroup_usage_bytes == 100 * 2**20
    assert memory.free_bytes == 412 * 2**20


def test_cgroup_v1_without_a_limit(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu:/x\n4:memory:/x\n",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert host.read_host_memory(root).cgroup_limit_bytes is None


def test_container_whose_cgroup_is_the_mount(tmp_path: Path) -> None:
    # GIVEN a path from outside of the container, that does not exist inside
    root = make_tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/0123\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**29}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n",
        },
    )
    assert host.read_cgroup_memory(root) == (2**29, 4096)


def test_unreadable_files_mean_no_limit(tmp_path: Path) -> None:
    assert host.read_cgroup_memory(tmp_path) == (None, 0)


@pytest.mark.parametrize(
    ("environment", "ranks", "tasks"),
    [
        ({}, None, 1),
        ({"LOCAL_WORLD_SIZE": "8"}, 8, 1),
        ({"LOCAL_WORLD_SIZE": "x"}, None, 1),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, None, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "0"}, None, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, None, 3),
        ({"SLURM_STEP_TASKS_PER_NODE": "1"}, None, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x"}, None, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "garbage"}, None, 1),
    ],
)
def test_launchers_say_how_many_share_the_node(
    environment: dict[str, str], ranks: int | None, tasks: int
) -> None:
    assert host.local_ranks(environment) == ranks
    assert host.local_tasks(environment) == tasks


def test_capability_is_read_from_the_effective_set(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("CapPrm:\tffffffffffffffff\nCapEff:\t0000008000000000\n")
    assert host.has_capability(host.CAP_BPF, status)
    assert not host.has_capability(host.CAP_SYS_ADMIN, status)
