"""What MkDocs does before it writes pages: the reference and the figures are made, in memory."""

from figures import FIGURES, drawn
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference import PAGES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that the code writes."""
    for name, write in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=write()))
    for name in FIGURES:
        files.append(File.generated(config, f"figures/{name}.svg", content=drawn(name)))
    return files
