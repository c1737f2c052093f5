"""The environment in which `transit run` starts a job (docs/formats.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from transit import allocator, dram, driver, host, interpreter, libraries, lifetimes
from transit.allocator import Allocator
from transit.errors import TransitError
from transit.units import Budget, parse_budget

_NCCL_OFF: Final = ("NCCL_GRAPH_REGISTER", "NCCL_LOCAL_REGISTER")

_NO_DRIVER: Final = (
    "warning: no NVIDIA driver (libcuda.so.1) was found, so the job runs without Transit;"
    " 'transit doctor' tells more, --simulated runs on the simulated GPU"
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asked `transit run` for. None means not given."""

    hbm: Budget | None = None
    dram: Budget | None = None
    simulated: bool = False
    allocator: Allocator | None = None
    verify: bool = False
    record_step: int | None = None
    log_level: str | None = None


@dataclass(slots=True)
class Launch:
    """A job's environment, and what the user has to be told before it starts.

    `without` is the note that says why the job runs without Transit, if it does.
    """

    environment: dict[str, str]
    simulated: bool = False
    shim: Path | None = None
    driver: Path | None = None
    torch: str | None = None
    notes: list[str] = field(default_factory=list)
    without: str | None = None

    @property
    def verifies(self) -> bool:
        """True for a verification run, by `--verify` or because an outer one says so."""
        return self.environment.get("TRANSIT_VERIFY") == "1"


def prepare(
    options: RunOptions, command: Sequence[str], environment: Mapping[str, str], run_folder: Path
) -> Launch:
    """Everything between the command line and the start of the job.

    A machine without a driver or without the shim gets the job's own environment, and a note.

    Raises:
        TransitError: what was asked for explicitly cannot be had.
    """
    launch = Launch(dict(environment))
    real = _real_driver(options, environment)
    if real is None:
        return _leave_alone(launch, _NO_DRIVER)
    try:
        launch.shim = libraries.shim_path()
    except libraries.NotInstalled as error:
        if options.simulated:
            raise
        why = f"warning: {error}, so the job runs without Transit; {error.hint}"
        return _leave_alone(launch, why)
    launch.driver = real
    launch.simulated = real.name == libraries.SIM_CUDA
    _set_libraries(launch, launch.shim, real, run_folder)
    _set_budgets(launch, options)
    _set_switches(launch, options)
    _set_lifetimes(launch, command)
    return launch


def _leave_alone(launch: Launch, why: str) -> Launch:
    launch.without = why
    launch.notes.append(why)
    return launch


def _real_driver(options: RunOptions, environment: Mapping[str, str]) -> Path | None:
    if not options.simulated:
        return driver.find_driver(environment)
    given = Path(environment.get("TRANSIT_REAL_LIBCUDA", ""))
    if given.name == libraries.SIM_CUDA and given.is_file():
        return given
    return libraries.sim_cuda_path()


def _set_libraries(launch: Launch, shim: Path, real: Path, run_folder: Path) -> None:
    environment = launch.environment
    environment["TRANSIT_REAL_LIBCUDA"] = str(real)
    environment["TRANSIT_RUN_DIR"] = str(run_folder)
    append_preload(environment, shim)
    if launch.simulated:
        _offer_simulated_nccl(environment, run_folder)
    for name in _NCCL_OFF:
        environment.setdefault(name, "0")


def append_preload(environment: dict[str, str], library: Path) -> None:
    """Put `library` last in LD_PRELOAD, once."""
    present = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    if str(library) not in present:
        environment["LD_PRELOAD"] = ":".join([*present, str(library)])


def _offer_simulated_nccl(environment: dict[str, str], run_folder: Path) -> None:
    folder = run_folder / "nccl"
    folder.mkdir(mode=0o700)
    (folder / "libnccl.so.2").symlink_to(libraries.sim_nccl_path())
    old = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = f"{folder}:{old}" if old else str(folder)


def _set_budgets(launch: Launch, options: RunOptions) -> None:
    environment = launch.environment
    hbm = options.hbm or parse_budget(environment.get("TRANSIT_HBM") or "auto")
    environment["TRANSIT_HBM"] = str(hbm)
    shared_already = environment.get("TRANSIT_DRAM_SHARED") == "1"
    if options.dram is None and environment.get("TRANSIT_DRAM") and shared_already:
        return  # an outer `transit run` has done it for the whole node
    asked = options.dram or parse_budget(environment.get("TRANSIT_DRAM") or "auto")
    plan = dram.plan(
        asked,
        host.read_host_memory(),
        host.local_ranks(environment),
        host.local_tasks(environment),
    )
    if plan.warning:
        launch.notes.append(f"warning: {plan.warning}")
    environment["TRANSIT_DRAM"] = str(plan.dram_bytes)
    environment["TRANSIT_DRAM_SHARED"] = "1" if plan.shared else "0"


def _set_switches(launch: Launch, options: RunOptions) -> None:
    environment = launch.environment
    if options.verify:
        environment["TRANSIT_VERIFY"] = "1"
    if options.record_step is not None:
        environment["TRANSIT_RECORD_STEP"] = str(options.record_step)
    if options.log_level is not None:
        environment["TRANSIT_LOG"] = options.log_level
    if options.allocator is not None:
        setting = allocator.merge(options.allocator, environment)
        environment.update(setting.variables)
        launch.notes += [f"warning: {conflict}" for conflict in setting.conflicts]


def _set_lifetimes(launch: Launch, command: Sequence[str]) -> None:
    environment = launch.environment
    environment.pop("TRANSIT_LIFETIMES", None)
    python = interpreter.find_interpreter(command, environment.get("PATH"))
    torch = interpreter.find_torch(python, environment) if python else None
    if torch is None:
        return
    launch.torch = torch.version
    built = lifetimes.obtain(torch, libraries.lifetimes_source(), environment)
    if built.path is not None:
        environment["TRANSIT_LIFETIMES"] = str(built.path)
    elif built.problem is not None:
        launch.notes.append(
            f"note: PyTorch's block lifetimes are not visible ({built.problem});"
            " the job runs, but more has to be moved"
        )


def collect_recordings(run_folder: Path, target: Path, ranks: Mapping[int, int]) -> list[Path]:
    """Move `PID.step` files out of the run's folder; `.rankN` is added if there are several.

    Args:
        run_folder: where the shim wrote them.
        target: the file that the user named.
        ranks: local rank by pid.
    """
    found = sorted(run_folder.glob("*.step"))
    written: list[Path] = []
    for path in found:
        pid = int(path.stem) if path.stem.isdecimal() else 0
        name = f"{target.name}.rank{ranks.get(pid, pid)}" if len(found) > 1 else target.name
        try:
            data = path.read_bytes()
            target.with_name(name).write_bytes(data)
        except OSError as error:
            raise TransitError(
                f"cannot write {target.with_name(name)}: {error.strerror}"
            ) from error
        written.append(target.with_name(name))
    return written
