"""Checks of the driver and the GPUs."""

from transit import driver
from transit.doctor.base import Check, ok, problem, warning
from transit.driver import DeviceFeatures, DriverFacts
from transit.units import fmt_bytes

_INSTALL_DRIVER = (
    "install NVIDIA's driver, or in a container start it with --gpus all;"
    " without one, jobs run without Transit unless --simulated"
)


def check_gpu() -> list[Check]:
    """The driver, the GPUs, and what Transit needs of them."""
    path = driver.find_driver()
    if path is None:
        return [problem("driver", "no libcuda.so.1", _INSTALL_DRIVER)]
    facts = driver.ask_driver(path)
    if facts is None:
        return [problem("driver", f"{path} cannot be used", _INSTALL_DRIVER)]
    version, gpus = _ask_nvml()
    checks = [check_driver(str(path), facts, version)]
    checks += gpus
    for index, features in enumerate(facts.devices):
        checks.append(check_features(index, features))
    return checks


def check_driver(path: str, facts: DriverFacts, version: str | None) -> Check:
    """That the driver starts."""
    if facts.init_error == 34:
        return problem(
            "driver", f"{path} is a stub", "take CUDA's stubs folder out of LD_LIBRARY_PATH"
        )
    if facts.init_error != 0:
        return problem(
            "driver", f"{path}: cuInit returns error {facts.init_error}", _INSTALL_DRIVER
        )
    if not facts.devices:
        return problem("driver", f"{path} sees no GPU", "check CUDA_VISIBLE_DEVICES")
    return ok("driver", f"{version or 'version n/a'}, CUDA {facts.cuda_version}, {path}")


def check_features(index: int, features: DeviceFeatures) -> Check:
    """That a device has virtual memory management for its own and for the host's memory."""
    name = f"gpu {index} vmm"
    missing = [
        label
        for label, present in (("VMM", features.vmm), ("HOST_NUMA VMM", features.host_numa_vmm))
        if not present
    ]
    if missing:
        return problem(
            name,
            f"{' and '.join(missing)} not supported",
            "Transit needs a data-centre GPU with a driver of 2024 or later",
        )
    return ok(name, f"VMM and HOST_NUMA VMM supported, NUMA node {features.host_numa_id}")


def _ask_nvml() -> tuple[str | None, list[Check]]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        fix = "GPU names and memory are not shown; install libnvidia-ml.so.1"
        return None, [warning("nvml", f"{error}", fix)]
    try:
        checks = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            text = f"{pynvml.nvmlDeviceGetName(handle)}, {fmt_bytes(int(memory.total))}"
            checks.append(ok(f"gpu {index}", f"{text}, {fmt_bytes(int(memory.free))} free"))
        return str(pynvml.nvmlSystemGetDriverVersion()), checks
    except pynvml.NVMLError as error:
        return None, [warning("nvml", f"{error}", "GPU names and memory are not shown")]
    finally:
        pynvml.nvmlShutdown()
