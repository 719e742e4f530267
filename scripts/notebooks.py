"""Write the notebooks of the course in English and Korean, with their outputs: python scripts/notebooks.py [NAME ...]

docs/course/notebooks/NAME.py is the source of NAME.ipynb and NAME.ko.ipynb. `# %%` begins a cell of code, `# %% en` and
`# %% ko` a text in that language. Both notebooks have the same code, so one run gives the outputs of both. Where only
texts have changed, the outputs are kept; to run such a notebook again, delete NAME.ipynb. Nothing else should compute
then: a training that has to wait for the cores says so, and the outputs keep it.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

# The first cell of code of every notebook.
INSTALL = """\
# Where dragoman is missing, as in Colab or Binder, this installs it, which takes some minutes. You need no GPU: each
# training takes about a minute on two cores, and longer on busy ones.
# 코랩(Colab)이나 바인더(Binder)처럼 dragoman이 없는 곳이면 설치해요. 몇 분 걸려요. GPU는 필요 없어요.
# 학습은 코어 두 개로 1분쯤, 코어가 바쁘면 더 걸려요.
import importlib.util

if importlib.util.find_spec("dragoman") is None:
    %pip install --quiet "dragoman[plot]"
"""

FOLDER = Path(__file__).parents[1] / "docs" / "course" / "notebooks"
SUFFIXES = {"en": ".ipynb", "ko": ".ko.ipynb"}


class Cell(NamedTuple):
    """A cell of a source: a text in `language`, or code if that is ''."""

    language: str
    content: str


def read_cells(source: Path) -> list[Cell]:
    """Return the cells of the source of a notebook."""
    parts = re.split(r"^# %%(?: (\w+))?\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    cells = []
    for language, content in zip(parts[::2], parts[1::2], strict=True):
        text = re.sub(r"^# ?", "", content, flags=re.MULTILINE) if language else content
        cells.append(Cell(language or "", text.strip()))
    return cells


def build(source: Path, language: str) -> NotebookNode:
    """Return the notebook of a source in a language, not run."""
    title, *others = (cell for cell in read_cells(source) if cell.language in ("", language))
    chosen = [title, Cell("", INSTALL.strip()), *others]
    cells = [
        (new_markdown_cell if cell.language else new_code_cell)(cell.content, id=f"cell-{number}")
        for number, cell in enumerate(chosen, start=1)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def run(notebook: NotebookNode, folder: Path) -> None:
    """Run a notebook in `folder`; the outputs go into its cells. Raise CellExecutionError where a cell fails."""
    metadata = notebook.metadata.copy()
    resources = {"metadata": {"path": str(folder)}}
    options = {"timeout": None, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, resources=resources, **options).execute()
    notebook.metadata = metadata  # without the version of Python
    for cell in code_cells(notebook):  # a bar that is gone leaves an empty output
        cell.outputs = [output for output in cell.outputs if output.get("data") != {"text/plain": ""}]


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def main() -> None:
    """Run and write the notebooks that the command line names, or all."""
    names = sys.argv[1:] or sorted(source.stem for source in FOLDER.glob("*.py"))
    for name in names:
        source = FOLDER / f"{name}.py"
        ran = notebook_with_outputs(source)
        for language, suffix in SUFFIXES.items():
            notebook = build(source, language)
            for cell, executed in zip(code_cells(notebook), code_cells(ran), strict=True):
                cell.outputs, cell.execution_count = executed.outputs, executed.execution_count
            nbformat.write(notebook, source.with_suffix(suffix))
            print(source.with_suffix(suffix))


def notebook_with_outputs(source: Path) -> NotebookNode:
    """Return the notebook that was written last if its code is that of the source; otherwise run a new one."""
    notebook, file = build(source, "en"), source.with_suffix(SUFFIXES["en"])
    if file.exists():
        written = nbformat.read(file, as_version=4)
        if [cell.source for cell in code_cells(written)] == [cell.source for cell in code_cells(notebook)]:
            return written
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder))
    return notebook


if __name__ == "__main__":
    main()
