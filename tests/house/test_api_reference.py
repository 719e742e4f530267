"""`make docs`: the reference has all public names with what they do, and pdoc warns of nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman

pytest.importorskip("pdoc", reason="the reference needs the extra `docs`")

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_reference.py"


@pytest.mark.slow
def test_reference_has_every_public_name_with_its_docstring(tmp_path: Path):
    command = [sys.executable, "-W", "error", str(SCRIPT), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    page = (tmp_path / "dragoman.html").read_text("utf-8")
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.DOTALL))
    assert [name for name in dragoman.__all__ if 'class="docstring"' not in sections.get(name, "")] == []
    assert "configure_openmp" not in page  # the control: no public name
    assert "source: a folder or a zip file of Hugging Face" in sections["import_model"]
