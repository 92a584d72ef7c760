"""What is looked for: a text, or rows by name, file, pattern or licence; of each row, whether it is
among them.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import BadInput
from tasks.data.deduplication.normal import normalise
from tasks.data.row_files import read_text

UNKNOWN = "unknown"
PLACE = r":\d+$"


@dataclass(frozen=True)
class Asked:
    """One of these: rows that hold `text` (up to white space and Unicode form), that are named
    `id`, came from the source file `file`, match the regular expression `pattern`, or have the
    `license`. A `file` that is no source's holds the text that is looked for.
    """

    text: str | None = None
    id: str | None = None
    file: str | None = None
    pattern: str | None = None
    license: str | None = None

    def check(self) -> "Asked":
        """Itself. Raises BadInput unless one thing is asked, and it can be looked for."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if len(given) != 1:
            said = ", ".join(given) or "nothing"
            raise BadInput(f"{said} given; give one: a text, --id, --file, --pattern or --license")
        if not next(iter(given.values())).strip():
            raise BadInput(f"an empty {next(iter(given))} is in every row; give what to look for")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise BadInput(
                    f"--pattern {self.pattern}: no regular expression: {error}"
                ) from error
        return self

    def of_file(self) -> "Asked":
        """The text in a `file`, to look for it. Raises BadInput for one that cannot be read."""
        if not Path(str(self.file)).expanduser().is_file():
            raise BadInput(
                f"--file {self.file}: no row came from it, and no such file holds a text to look "
                "for; `headrace lineage read` lists source files"
            )
        return Asked(text=read_text(Path(str(self.file)).expanduser())).check()

    @property
    def kind(self) -> str:
        """Which of them is given."""
        return next(name for name, value in asdict(self).items() if value is not None)

    def digest(self, salt: str) -> str:
        """A salted hash of what is asked, by which an erasure that was cut short is found again."""
        return hashlib.sha256(f"{salt}:{json.dumps(asdict(self))}".encode()).hexdigest()

    def rows(self, batch: pa.RecordBatch, roots: dict[str, Path]) -> np.ndarray:
        """Which rows of a batch of text are among them, [N]; `roots` has the folder of a source's
        files, or its one file, by its label.
        """
        if self.text is not None:
            found = pc.match_substring(normalise(batch["text"]), self._normal)
        elif self.id is not None:
            ids = batch["id"]
            found = pc.or_(pc.equal(ids, self.id), pc.ends_with(ids, f"/{self.id}"))
        elif self.license is not None:
            named = pc.coalesce(batch["license"], pa.scalar(UNKNOWN))
            found = pc.equal(pc.utf8_lower(named), self.license.lower())
        elif self.pattern is not None:
            wanted = re.compile(self.pattern)
            found = pa.array(
                [bool(wanted.search(t)) for t in batch["text"].to_pylist()], pa.bool_()
            )
        else:
            pairs = zip(batch["source"].to_pylist(), batch["origin"].to_pylist(), strict=True)
            found = pa.array([self._is_from(*pair, roots) for pair in pairs], pa.bool_())
        return np.asarray(found.to_numpy(zero_copy_only=False))

    @cached_property
    def _normal(self) -> str:
        found: str = normalise(pa.array([self.text], pa.large_string()))[0].as_py()
        return found

    def _is_from(self, label: str, origin: str, roots: dict[str, Path]) -> bool:
        """By its path, or by its name below the source, with the source's label or without."""
        assert self.file is not None
        name = re.sub(PLACE, "", origin)
        if self.file in (name, f"{label}/{name}"):
            return True
        root = roots.get(label)
        return root is not None and Path(self.file).absolute() in (root, root / name)
