"""Build the site of these pages: python scripts/docs_site.py FOLDER. Its first page is FOLDER/html/index.html.

Each page has the place that it has in the repository, so a link that works in a checkout works on the site. A file that
a page links to, such as a module, is copied as it is; a folder, with a page that lists its files.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dragoman.version import __version__

ROOT = Path(__file__).parents[1]
FRONT = ("README.md", "README.ko.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/dragoman/README.md")
LINK = re.compile(r"(?<=\]\()([^):#\s]+)(?=[#)])")  # within the repository
CODE = re.compile(r"^(?:    .*|```[\s\S]*?^```)$|`[^`\n]*`", re.MULTILINE)


def source_pages() -> list[Path]:
    """Return the pages, relative to the repository."""
    return [*map(Path, FRONT), *sorted(page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md"))]


def linked_files(page: Path) -> set[Path]:
    """Return the files and folders that a page links to, without pages, relative to the repository."""
    text = CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    linked = {(ROOT / page.parent / target).resolve().relative_to(ROOT) for target in LINK.findall(text)}
    return {file for file in linked if file.suffix != ".md"}


def convert(page: Path) -> str:
    """Return the text of a page for the generator, which reads some things in another way than GitHub does."""

    def name_list(link: re.Match[str]) -> str:
        return f"{link[0].rstrip('/')}/index.md" if (ROOT / page.parent / link[0]).is_dir() else link[0]

    def keep_bars(code: re.Match[str]) -> str:
        return "<code>" + code[1].replace("\\|", "&#124;") + "</code>"

    text = (ROOT / page).read_text(encoding="utf-8").replace("<details>", '<details markdown="1">')
    text = re.sub(r"`([^`\n]*\\\|[^`\n]*)`", keep_bars, text)  # in tables
    text = re.sub(r"!\[([^\]]*)\]\(https?:[^)]*\)", r"\1", text)  # badges: the site asks no other host
    return LINK.sub(name_list, text)


def lay_out(folder: Path) -> None:
    """Write the pages and what they link to into a folder, as the generator reads them."""
    pages = source_pages()
    for file in pages:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(convert(file), encoding="utf-8")
    for file in set().union(*map(linked_files, pages)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).is_dir():
            shutil.copytree(ROOT / file, folder / file, dirs_exist_ok=True)
            names = sorted(path.name for path in (ROOT / file).iterdir())
            listing = "".join(f"- [{name}]({name})\n" for name in names)
            (folder / file / "index.md").write_text(f"# {file}\n\n{listing}", encoding="utf-8")
        else:
            shutil.copyfile(ROOT / file, folder / file)


def build(folder: Path) -> Path:
    """Build the site in a folder; return that of its pages. Raise CalledProcessError for a link to nowhere."""
    lay_out(folder / "pages")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "scripts" / "site_assets", folder / "pages" / "assets")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    environment = {**os.environ, "SITE_NAME": f"dragoman {__version__}", "NO_COLOR": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    for page in source_pages():
        html = folder / "html" / page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")
        text = html.read_text(encoding="utf-8").replace("<th></th>", "<td></td>")  # the corner of a table heads nothing
        language = "ko" if page.stem.endswith(".ko") else "en"
        html.write_text(text.replace('lang="en"', f'lang="{language}"', 1), encoding="utf-8")
    (folder / "html" / "404.html").unlink()  # its links are those of a site at the root of a host
    return folder / "html"


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    print(build(Path(sys.argv[1])) / "index.html")
