"""Files that travel with the program without being Python: Lua scripts, alert rules, dashboards.

What may go wrong: a wheel carries `alerts` and `grafana` inside the package, while in a checkout (an editable
install included) they lie two folders above it. Nobody else needs to know which of the two this is.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]


def asset(name: str) -> Traversable:
    """Return the shipped file or folder `name`, a path with `/` such as `alerts/rules.yml`.

    The package is asked first, then the checkout that the package lies in.
    Raises FileNotFoundError, naming both places, when neither has it, and ValueError for a path that leaves them.
    """
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError(f"{name!r} is no path inside the package")
    packaged = files("unstuck").joinpath(*parts)
    if packaged.is_file() or packaged.is_dir():
        return packaged
    checkout = _CHECKOUT.joinpath(*parts)
    if (_CHECKOUT / "pyproject.toml").is_file() and checkout.exists():
        return checkout
    raise FileNotFoundError(f"unstuck ships no {name!r}: it is neither at {packaged} nor at {checkout}")
