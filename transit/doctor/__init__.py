"""What of a machine Transit can use: checks that only read, each with its fix."""

from transit.doctor.base import Check, State
from transit.doctor.gpu import check_gpu
from transit.doctor.memory import check_memory
from transit.doctor.software import check_software
from transit.doctor.system import check_system

__all__ = ["Check", "State", "all_checks"]


def all_checks() -> list[Check]:
    """Every check, in the order in which they are shown."""
    return [*check_system(), *check_gpu(), *check_memory(), *check_software()]
