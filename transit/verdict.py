"""Verdicts of `transit run --verify`, kept by the job's signature (docs/formats.md).

A verdict is advice. Whatever fails here ends in a note, never in a failure of the job.
"""

import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from transit.signature import Signature
from transit.stats import NamedCount, ProcessStats

SCHEMA: Final = "transit.verified/1"
_MAX_RECORD: Final = 2**20
_MAX_HIDDEN: Final = 32
_HIDDEN: Final = "hidden"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification run found."""

    verified_at: str
    steps: int
    managed_bytes: int
    unmapped_bytes: int
    hidden_accesses: int
    hidden: tuple[NamedCount, ...] = ()

    @property
    def failed(self) -> bool:
        """True if an access was found that Transit cannot foresee."""
        return self.hidden_accesses > 0

    @property
    def share(self) -> float:
        """Of the managed memory, how much was unmapped at some time; extents round it up."""
        return min(1.0, self.unmapped_bytes / self.managed_bytes) if self.managed_bytes else 0.0

    def to_json(self) -> dict[str, Any]:
        """The verdict's part of a record, and of the summary."""
        return {
            "state": "failed" if self.failed else "passed",
            "verified_at": self.verified_at,
            "steps": self.steps,
            "managed_bytes": self.managed_bytes,
            "unmapped_bytes": self.unmapped_bytes,
            "unmapped_share": round(self.share, 4),
            "hidden_accesses": self.hidden_accesses,
            "hidden": [{"name": each.name, "count": each.count} for each in self.hidden],
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """What is known of a job: by this run if `fresh`, else by an earlier one."""

    verdict: Verdict | None = None
    note: str | None = None
    fresh: bool = False


def conclude(processes: Sequence[ProcessStats], exit_code: int, now: datetime) -> Verdict | None:
    """The verdict of a verification run; None if it proves nothing.

    A hidden access is proof whatever became of the job. That there is none is only worth
    something after a run that ended well.
    """
    using = [each for each in processes if each.counter("unmapped_bytes_verified")]
    hidden = [each for process in processes for each in process.of_kind(_HIDDEN)]
    accesses = sum(each.counter("hidden_accesses") for each in processes)
    accesses = max(accesses, sum(each.count for each in hidden))
    if not accesses and (exit_code != 0 or not using):
        return None
    return Verdict(
        verified_at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        steps=min((each.counter("steps") for each in using), default=0),
        managed_bytes=sum(each.counter("managed_peak_bytes") for each in using),
        unmapped_bytes=sum(each.counter("unmapped_bytes_verified") for each in using),
        hidden_accesses=accesses,
        hidden=tuple(hidden[:_MAX_HIDDEN]),
    )


def folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """$XDG_STATE_HOME/transit/verified, or below ~/.local/state; None for a user without a home."""
    base = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "transit/verified"
    try:
        return Path.home() / ".local/state/transit/verified"
    except RuntimeError:
        return None


def recall(signature: Signature, environment: Mapping[str, str] = os.environ) -> Verification:
    """What an earlier verification of this job found."""
    place = folder(environment)
    if place is None:
        return Verification()
    path = place / f"{signature.key}.json"
    try:
        text = _read_regular(path)
        return Verification() if text is None else Verification(_decode(json.loads(text)))
    except OSError as error:
        return Verification(note=f"note: {path} cannot be read ({error.strerror or error})")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Verification(note=f"note: {path} is no record of a verification and is ignored")


def settle(
    signature: Signature, verdict: Verdict | None, environment: Mapping[str, str] = os.environ
) -> Verification:
    """Keep the verdict of the verification run that has just ended."""
    if verdict is None:
        return Verification(
            note="the verification run proves nothing: it did not end well, or unmapped nothing",
            fresh=True,
        )
    problem = _keep(signature, verdict, environment)
    return Verification(verdict, problem or "the verdict is kept for later runs of this job", True)


def _keep(signature: Signature, verdict: Verdict, environment: Mapping[str, str]) -> str | None:
    """Write the record, whole or not at all; a sentence if it cannot be written."""
    place = folder(environment)
    if place is None:
        return "note: the verdict is not kept: this user has no home, and XDG_STATE_HOME is unset"
    document = {"schema": SCHEMA, "signature": asdict(signature), **verdict.to_json()}
    temporary = None
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, prefix=".new-")
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(document, indent=2) + "\n")
        os.replace(temporary, place / f"{signature.key}.json")
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        return f"note: the verdict is not kept: {place}: {error.strerror or error}"
    return None


def _read_regular(path: Path) -> str | None:
    """A small regular file's text; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        return file.read(_MAX_RECORD).decode()


def _decode(document: Any) -> Verdict:
    if document["schema"] != SCHEMA:
        raise ValueError("another schema")
    verdict = Verdict(
        verified_at=_date(document["verified_at"]),
        steps=_count(document["steps"]),
        managed_bytes=_count(document["managed_bytes"]),
        unmapped_bytes=_count(document["unmapped_bytes"]),
        hidden_accesses=_count(document["hidden_accesses"]),
        hidden=tuple(
            NamedCount(_HIDDEN, _printable(each["name"]), _count(each["count"]))
            for each in document["hidden"][:_MAX_HIDDEN]
        ),
    )
    if document["state"] != ("failed" if verdict.failed else "passed"):
        raise ValueError("it contradicts itself")
    return verdict


def _date(value: str) -> str:
    datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("not a count")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("not a name")
    return value
