"""What a data directory that others can access becomes."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from headrace.host import owner_only
from headrace.host.owner_only import tighten


def modes(directory: Path) -> dict[str, int]:
    found = [directory, *directory.rglob("*")]
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in found if not path.is_symlink()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that all users of the machine can read and write."""
    data = tmp_path / "data"
    (data / "partitions" / "one").mkdir(parents=True)
    (data / "metadata.sqlite").write_bytes(b"secret")
    (data / "partitions" / "one" / "0.log").write_bytes(b"records")
    (data / "kept").write_bytes(b"closed already")
    for path in [data, *data.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    (data / "kept").chmod(0o400)
    return data


def test_everything_is_taken_from_other_users_and_its_owner_keeps_what_they_had(data: Path) -> None:
    assert tighten(str(data)) == (5, [])
    assert modes(data) == {
        "data": 0o700,
        "partitions": 0o700,
        "one": 0o700,
        "metadata.sqlite": 0o600,
        "0.log": 0o600,
        "kept": 0o400,
    }
    assert tighten(str(data)) == (0, [])


def test_a_directory_behind_a_link_is_tightened_and_a_link_inside_it_is_not_followed_but_told(
    data: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"of another program")
    outside.chmod(0o644)
    (data / "link").symlink_to(outside)
    (data / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "by-link").symlink_to(data)
    assert tighten(str(tmp_path / "by-link")) == (5, [str(data / "link")])
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_what_belongs_to_another_user_is_told() -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: only root can give a file to another user")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")  # this one may be in root's own directory
    if python is None:
        pytest.skip("NOT TESTED: no Python for another user to run")
    other = 65534
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is closed to other users
        data = Path(directory, "data")
        data.mkdir()
        for name in ("mine", "another's"):
            (data / name).touch()
            (data / name).chmod(0o644)
        for path in (Path(directory), data, data / "mine"):
            os.chown(path, other, other)
            path.chmod(0o755 if path.is_dir() else 0o644)
        # Only the standard library: that user need not be able to read this tree.
        source = Path(owner_only.__file__).read_text(encoding="utf-8")
        code = f"{source}\nprint(tighten({str(data)!r}))"
        asked = [python, "-I", "-c", code]
        found = subprocess.run(
            asked, user=other, group=other, extra_groups=[], capture_output=True, text=True, check=False
        )
        assert found.stdout.strip() == str((2, [f"{data}/another's"])), found.stderr
