"""The README and the documentation as tests see them: pages of code blocks, and the links in them.

A block of commands is run where the page stands, unless its first line says what it needs:

    # Takes about a minute.        only among the slow tests, with all that comes after it
    # Needs a judge's endpoint.    never; its commands must parse

A block with a `title` is a file, written before the blocks after it are run.
"""

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')
GENERATED = ("reference/settings.md", "reference/commands.md", "reference/modules.md")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a page: its language, its text, the file it is."""

    page: str
    language: str
    text: str
    title: str | None

    @property
    def needs(self) -> bool:
        """Whether it takes what a bare machine has not."""
        return self.text.startswith("# Needs ")

    @property
    def slow(self) -> bool:
        """Whether it takes longer than a second or so."""
        return self.text.startswith("# Takes ")

    @property
    def runs(self) -> bool:
        """Whether it is to be run at all."""
        return self.language in ("sh", "python") and not self.title and not self.needs

    def commands(self) -> list[list[str]]:
        """Its `headrace` commands as lists of words, without what the shell does with them."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.split("  #")[0].strip() for line in joined.splitlines()]
        words = [shlex.split(line.split("uv run ")[-1]) for line in lines if "headrace " in line]
        found = [one for one in words if one and one[0] == "headrace"]
        return [one[: one.index(">")] if ">" in one else one for one in found]


def pages() -> list[Path]:
    """The README, the word to automated contributors and every page that is written by hand."""
    first = [ROOT / "README.md", ROOT / "AGENTS.md"]
    return [*first, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> list[CodeBlock]:
    """The fenced blocks of a page, in order."""
    name = str(path.relative_to(ROOT))
    return [
        CodeBlock(name, language, text, title[1] if (title := TITLE.search(about)) else None)
        for language, about, text in FENCE.findall(path.read_text())
    ]


def quick_blocks(path: Path) -> list[CodeBlock]:
    """Those before the first that takes longer."""
    return list(itertools.takewhile(lambda block: not block.slow, blocks(path)))


def every_block() -> list[CodeBlock]:
    """The blocks of all pages."""
    return [block for path in pages() for block in blocks(path)]


def dead_links(path: Path) -> list[str]:
    """Relative links of a page that lead nowhere; those to what the build writes are known."""
    from figures import FIGURES

    made = {ROOT / "docs" / name for name in GENERATED}
    made |= {ROOT / "docs" / "figures" / f"{name}.svg" for name in FIGURES}
    prose = FENCE.sub("", path.read_text())
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose)
    near = [target for target in targets if "://" not in target]
    return [
        t for t in near if (there := (path.parent / t).resolve()) not in made and not there.exists()
    ]
