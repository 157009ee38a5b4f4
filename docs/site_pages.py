"""What the site has beside the pages of this folder, as hooks of MkDocs: pages of the repository's root, the reference.

Links are written for the repository: those of the root's pages into `docs/` lead to the site's pages, and those to
other files of the repository to the address that `STRIDESMITH_URL` gives, without which only their texts stay.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import FunctionType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
AT_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages of the root, and what they are called on the site."""
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<to>(?!https?://|#|mailto:)[^)\s]+)\)")
KINDS = (("Functions", "function"), ("Classes", "class"), ("Errors", "error"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere or are made."""
    for name, called in AT_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, called, content=from_root(text, os.environ.get("STRIDESMITH_URL"))))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Lead links of a notebook to pages of the folder above to the site's pages, as MkDocs does with those of pages."""
    if not page.file.src_uri.endswith(".ipynb"):
        return output
    return re.sub(r'href="\.\./(\w+)\.md(#[^"]*)?"', lambda link: f'href="../../{link[1]}/{link[2] or ""}"', output)


def from_root(page: str, url: str | None) -> str:
    """A page of the root with links as the site has them."""

    def changed(link: re.Match[str]) -> str:
        path, mark, part = link["to"].removeprefix("./").partition("#")
        if path.startswith("docs/") and (ROOT / path).is_file():
            return f"{link['text']}({path.removeprefix('docs/')}{mark}{part})"
        if path in AT_ROOT:
            return f"{link['text']}({AT_ROOT[path]}{mark}{part})"
        return f"{link['text']}({url}/blob/main/{link['to']})" if url else link["text"].strip("![]")

    return LINK.sub(changed, page)


def reference() -> str:
    """The page of all public names, each of which its signature and docstring describe."""
    import stridesmith

    parts: dict[str, list[str]] = {kind: [] for _, kind in KINDS}
    for name in sorted(stridesmith.__all__, key=str.lower):
        value = getattr(stridesmith, name)
        if not isinstance(value, (type, FunctionType)):
            continue
        is_class = isinstance(value, type)
        kind = "error" if is_class and issubclass(value, Exception) else "class" if is_class else "function"
        parts[kind].append(f"::: {value.__module__}.{value.__name__}\n    options: {{heading_level: 3}}\n")
    parts["function"].append("::: stridesmith.ir.picture.layout_picture\n    options: {heading_level: 3}\n")
    text = "# Reference\n\nEvery name of `import stridesmith as ss`; primitives are in [schedules](schedules.md).\n\n"
    return text + "\n".join(f"## {title}\n\n" + "\n".join(parts[kind]) for title, kind in KINDS)
