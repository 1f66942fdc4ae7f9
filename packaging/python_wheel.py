"""Build backend of pyproject.toml (PEP 517, PEP 660): wheels of python/larklane, by the standard library alone, so that `pip install .` needs no network.

The version is that of project() in CMakeLists.txt.
"""

import base64
import hashlib
import pathlib
import re
import tarfile
import tomllib
import zipfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "python"
WHEEL = "Wheel-Version: 1.0\nGenerator: larklane\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SOURCES = ("CMakeLists.txt", "LICENSE", "pyproject.toml", "packaging/python_wheel.py")
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal sources give equal wheels


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def version() -> str:
    found = re.search(r"^project\(larklane VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ValueError("CMakeLists.txt: no project(larklane VERSION ...)")
    return found[1]


def metadata() -> str:
    facts = project()
    lines = ["Metadata-Version: 2.1", f"Name: {facts['name']}", f"Version: {version()}", f"Summary: {facts['description']}",
             f"Requires-Python: {facts['requires-python']}", "License: BSD-3-Clause"]
    for extra, wanted in facts["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {each}; extra == \"{extra}\"" for each in wanted)]
    return "\n".join(lines) + "\n"


def sources() -> list[pathlib.Path]:
    return sorted([*PACKAGES.glob("larklane/**/*.py"), *PACKAGES.glob("larklane/**/*.def")])


def _wheel(folder: str, files: dict[str, bytes]) -> str:
    name = f"{project()['name']}-{version()}"
    about = f"{name}.dist-info"
    scripts = "".join(f"{command} = {target}\n" for command, target in project()["scripts"].items())
    files = {**files, f"{about}/METADATA": metadata().encode(), f"{about}/WHEEL": WHEEL.encode(),
             f"{about}/entry_points.txt": f"[console_scripts]\n{scripts}".encode(), f"{about}/LICENSE": (ROOT / "LICENSE").read_bytes()}
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return wheel


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    del config_settings, metadata_directory
    return _wheel(wheel_directory, {path.relative_to(PACKAGES).as_posix(): path.read_bytes() for path in sources()})


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    del config_settings, metadata_directory
    return _wheel(wheel_directory, {"larklane.pth": f"{PACKAGES}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    del config_settings
    name = f"{project()['name']}-{version()}"
    with tarfile.open(pathlib.Path(sdist_directory, f"{name}.tar.gz"), "w:gz", dereference=True) as archive:
        for path in [*(ROOT / source for source in SOURCES), *sources()]:
            archive.add(path, f"{name}/{path.relative_to(ROOT).as_posix()}")
    return f"{name}.tar.gz"
