"""`make audit`: look for known vulnerabilities in the locked dependencies.

Exit code 0: none is known. 1: there are some, and they are listed. 2: the registry cannot tell, so only the list of
advisories in this folder was checked.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from packaging.version import Version

FOLDER = Path(__file__).parent
LOCK = FOLDER.parent / "requirements.lock"
ADVISORIES = FOLDER / "advisories.txt"
REGISTRY = "https://pypi.org"
TIMEOUT_SECONDS = 20.0
ATTEMPTS = 3
AT_ONCE = 8
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """A known vulnerability of a locked version."""

    package: str
    version: str
    advisory: str
    fixed_in: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {self.advisory}, fixed in {self.fixed_in or 'no version yet'}"


class RegistryError(Exception):
    """The registry does not tell the vulnerabilities of a package."""


def read_lock(path: Path) -> dict[str, str]:
    """Return the locked version of each package. Raise ValueError for a line that is not pinned."""
    pins: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "--hash=")):
            continue
        match = _PIN.match(line)
        if match is None:
            raise ValueError(f"{path.name} has a line that is not pinned with ==: {line}")
        pins[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return pins


def find_known(pins: Mapping[str, str], advisories: Path = ADVISORIES) -> Iterator[Finding]:
    """Yield the findings from the list of advisories in this folder."""
    for line in advisories.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        package, fixed_in, advisory = line.split()
        version = pins.get(package)
        if version is not None and Version(version) < Version(fixed_in):
            yield Finding(package, version, advisory, fixed_in)


def ask_registry(pins: Mapping[str, str], registry: str) -> list[Finding]:
    """Return the findings that the registry publishes. Raise RegistryError if it cannot tell."""
    with httpx2.Client(base_url=registry, timeout=TIMEOUT_SECONDS, follow_redirects=True) as client:

        def ask(pin: tuple[str, str]) -> list[Finding]:
            return list(_parse(*pin, _fetch(client, *pin)))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [finding for findings in pool.map(ask, pins.items()) for finding in findings]


def _fetch(client: httpx2.Client, package: str, version: str) -> Mapping[str, Any]:
    reason = ""
    for _attempt in range(ATTEMPTS):
        try:
            answer = client.get(f"/pypi/{package}/{version}/json")
        except httpx2.TransportError as error:
            reason = type(error).__name__
            continue
        if answer.status_code == 200:
            document: Mapping[str, Any] = answer.json()
            if "vulnerabilities" not in document:
                raise RegistryError(f"it publishes no vulnerabilities ({package})")
            return document
        reason = f"HTTP {answer.status_code}"
        if answer.status_code < 500:
            break
    raise RegistryError(f"{reason} for {package} {version}")


def _parse(package: str, version: str, document: Mapping[str, Any]) -> Iterator[Finding]:
    for vulnerability in document["vulnerabilities"]:
        if vulnerability.get("withdrawn") is None:
            fixed_in = ", ".join(vulnerability.get("fixed_in") or [])
            yield Finding(package, version, str(vulnerability.get("id")), fixed_in)


def main() -> int:
    """Check the lock file, and print the findings."""
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--lock", type=Path, default=LOCK, help="the lock file")
    parser.add_argument("--registry", default=REGISTRY, help="the package registry")
    parser.add_argument("--offline", action="store_true", help="do not ask the registry")
    arguments = parser.parse_args()
    pins = read_lock(arguments.lock)
    findings = list(find_known(pins))
    failure = None
    if not arguments.offline:
        try:
            findings += ask_registry(pins, arguments.registry)
        except RegistryError as error:
            failure = error
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} known vulnerabilities in {len(pins)} packages: update them with `make lock`.")
        return 1
    if failure is not None:
        print(
            f"{arguments.registry} cannot tell the vulnerabilities ({failure}). Only {ADVISORIES.name} was checked: it "
            f"lists none of the {len(pins)} packages. Run `make audit` where the registry answers, or add "
            "AUDIT=--offline to check only that list."
        )
        return 2
    source = ADVISORIES.name if arguments.offline else arguments.registry
    print(f"{source} knows no vulnerability in the {len(pins)} packages.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
