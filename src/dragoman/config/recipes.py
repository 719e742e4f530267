"""Find recipes by name: files of complete settings that come with the package."""

from pathlib import Path

from dragoman.errors import UsageError

FOLDER = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Return the names of all recipes, in order."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def settings_file(name: str) -> Path:
    """Return the file of settings that `name` stands for: the recipe of that name, else the file `name` itself.

    Raise UsageError where it is neither a recipe nor ends in .toml, and where it names the file of a recipe in a folder
    that has none.
    """
    path, names = Path(name), recipe_names()
    if name in names:
        return FOLDER / f"{name}.toml"
    if path.suffix != ".toml":
        raise UsageError(f"{name} is neither a settings file (.toml) nor a recipe ({', '.join(names)})")
    if path.stem in names and not path.exists():
        raise UsageError(f"{name}: no such file; the recipe is called {path.stem}")
    return path
