"""`make wheel` builds what pip installs anywhere: no index carries headrace."""

import subprocess
import sysconfig
import venv
from pathlib import Path

import headrace

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0


def test_the_wheel_that_make_builds_works_in_a_fresh_environment(tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        return subprocess.run(
            command, cwd=tmp_path, check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE, text=True
        ).stdout

    made = run("make", "-C", ROOT, "--no-print-directory", "wheel", f"DIST={tmp_path}/dist")
    (wheel,) = (tmp_path / "dist").iterdir()
    assert made.splitlines()[-1] == str(wheel)
    assert wheel.name == f"headrace-{headrace.__version__}-py3-none-any.whl"

    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    home = Path(run(python, "-c", "import headrace; print(headrace.__file__)").strip())
    assert home.is_relative_to(tmp_path / "fresh")
    assert {"py.typed", "__init__.pyi"} <= {file.name for file in home.parent.iterdir()}

    # What the package needs is taken from this environment. Its own .pth files, and so this clone, are not read there.
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(packages) / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(tmp_path / "fresh" / "bin" / "headrace", "--version") == f"headrace {headrace.__version__}\n"
    assert run(python, "-c", "import headrace.cli.main; print(headrace.cli.main.__file__)").startswith(str(home.parent))
