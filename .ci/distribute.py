"""Wheel and sdist as a package index expects them: ``python .ci/distribute.py OUT --url https://HOST/OWNER/stridesmith``.

Built from a copy of the last commit, in which links of the README are those of `--url` at the tag of the version, since
an index shows the page without the repository beside it, and metadata have the addresses.  Two builds of one commit are
equal, byte by byte: times are the commit's, and files of the sdist have one order and no owner.  Ends with what
``twine check --strict`` says.  Needs the packages `build` and `twine`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?://|#|mailto:)([^)\s]+)\)")


def with_absolute_links(page: str, url: str, tag: str) -> str:
    """`page` with links into the repository as links to it at `tag`: to pages, and to pictures as they are."""
    return LINK.sub(
        lambda m: f"{m[1]}({url}/{'raw' if m[1].startswith('!') else 'blob'}/{tag}/{m[2].removeprefix('./')})", page
    )


def urls(url: str, tag: str) -> str:
    """The table of addresses for `pyproject.toml`."""
    addresses = {
        "Homepage": url, "Documentation": f"{url}/tree/{tag}/docs", "Source": url, "Issues": f"{url}/issues",
        "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
    }  # fmt: skip
    return "[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in addresses.items())


def reproducible(sdist: bytes, epoch: int) -> bytes:
    """The archive with its files in order, of nobody and of one time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as given,
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for member in sorted(given.getmembers(), key=lambda each: each.name):
            content = given.extractfile(member) if member.isfile() else None
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = epoch, {}
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            made.addfile(member, content)
    return packed.getvalue()


def main() -> int:
    """Build both into the folder OUT."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--url", required=True, help="where the repository is, without a slash at its end")
    asked = parser.parse_args()
    out, url = asked.out.resolve(), asked.url.rstrip("/")
    epoch = int(subprocess.check_output(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], text=True))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "stridesmith")
        copy.mkdir()
        archive = subprocess.check_output(["git", "-C", str(ROOT), "archive", "HEAD"])
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(copy, filter="data")
        version = re.search(r'__version__ = "(.*)"', (copy / "version.py").read_text(encoding="utf-8"))
        assert version is not None  # which `pyproject.toml` reads as well
        tag = f"v{version[1]}"
        readme, project = copy / "README.md", copy / "pyproject.toml"
        readme.write_text(with_absolute_links(readme.read_text(encoding="utf-8"), url, tag), encoding="utf-8")
        text = project.read_text(encoding="utf-8")
        project.write_text(text.replace("[project.scripts]", f"{urls(url, tag)}\n[project.scripts]"), encoding="utf-8")
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
        subprocess.run(
            [sys.executable, "-m", "build", "--outdir", str(out), str(copy)], env=environment, check=True, cwd=folder
        )
    for sdist in out.glob("*.tar.gz"):
        sdist.write_bytes(reproducible(sdist.read_bytes(), epoch))
    made = sorted(map(str, [*out.glob("*.tar.gz"), *out.glob("*.whl")]))
    return subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
