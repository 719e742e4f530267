"""`dragoman import` makes a model folder that the other commands take."""

import json
from pathlib import Path

from foreign import m2m100_folder, marian_folder, npz_folder


def test_imported_model_translates_with_its_default_tags(dragoman, tmp_path: Path):
    m2m100_folder(tmp_path / "their", nllb=True)
    (tmp_path / "their" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    out = tmp_path / "ours"
    ran = dragoman("import", str(tmp_path / "their"), str(out), "--tag", "eng_Latn", "--target-tag", "kor_Hang")
    assert (ran.code, ran.out) == (0, f"{out}\n")
    assert json.loads((out / "origin.json").read_text()) == {"origin": "their", "licence": "cc-by-nc-4.0"}
    assert "Licence: cc-by-nc-4.0" in (out / "card.md").read_text()
    found = dragoman("translate", "-m", str(out), "The dog sees 5 cats.", "--beam", "1")
    given = ("--tag", "eng_Latn", "--target-tag", "kor_Hang")
    assert found.code == 0
    assert dragoman("translate", "-m", str(out), "The dog sees 5 cats.", "--beam", "1", *given).out == found.out
    assert dragoman("verify", str(out)).code == 0
    assert dragoman("info", str(out)).code == 0


def test_tag_that_a_model_has_not_got_is_refused(dragoman, tmp_path: Path):
    marian_folder(tmp_path / "their", tags=[">>deu<<", ">>spa<<"])
    ran = dragoman("import", str(tmp_path / "their"), str(tmp_path / "ours"), "--tag", "kor")
    assert ran.code == 1
    assert "choose from deu, spa" in ran.err
    assert not (tmp_path / "ours").exists()
    assert dragoman("import", str(tmp_path / "their"), str(tmp_path / "ours"), "--tag", "spa").code == 0


def test_model_of_marian_translates_and_scores(dragoman, tmp_path: Path):
    npz_folder(tmp_path / "their", spm=False, joint=False, tied="target")
    assert dragoman("import", str(tmp_path / "their"), str(tmp_path / "ours")).code == 0
    assert dragoman("translate", "-m", str(tmp_path / "ours"), "The dog sees 5 cats.").code == 0
    (tmp_path / "pairs.tsv").write_text("The dog sees 5 cats.\t개가 봐요.\n", encoding="utf-8")
    assert dragoman("score", "-m", str(tmp_path / "ours"), str(tmp_path / "pairs.tsv")).code == 0
