"""Licenses of the embedded Python corpus, by file, from the metadata of installed packages."""

import sysconfig
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, distributions

from tasks.data.reading.sources import SITE_PACKAGES, SourceFile

STDLIB_LICENSE = "PSF-2.0"


def corpus_licenses(files: Iterable[SourceFile]) -> Callable[[SourceFile], str | None]:
    """A function from a file of the corpus to its license, None where that is unknown."""
    owners: dict[str, str | None] = {}
    if any(file.name.startswith(SITE_PACKAGES) for file in files):
        folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        for package in distributions(path=folders):
            tops = {file.parts[0] for file in package.files or ()}
            owners |= dict.fromkeys(tops, package_license(package))

    def license_of(file: SourceFile) -> str | None:
        if not file.name.startswith(SITE_PACKAGES):
            return STDLIB_LICENSE
        return owners.get(file.name.removeprefix(SITE_PACKAGES).split("/")[0])

    return license_of


def package_license(package: Distribution) -> str | None:
    """The SPDX expression if the package has one, else a short license field or its classifier."""
    about = package.metadata
    named = (about.get_all("License-Expression") or []) + (about.get_all("License") or [])
    field = named[0] if named else ""
    if field and len(field) < 80 and "\n" not in field:  # some paste the whole text
        return field
    prefix = "License :: OSI Approved :: "
    listed = [c for c in about.get_all("Classifier") or () if c.startswith(prefix)]
    return listed[0].removeprefix(prefix) if listed else None
