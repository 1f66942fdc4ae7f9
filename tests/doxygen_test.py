#!/usr/bin/env python3
"""Doxygen has no warning about the public headers, and an undocumented function does not pass.

Exit status: 0 clean, 1 complaints, 77 doxygen is missing.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def warnings_of(root, folder):
    """The warnings of Doxygen about tree `root`; its pages go to `folder`."""
    settings = (root / "Doxyfile").read_text(encoding="utf-8") + f"\nOUTPUT_DIRECTORY = {folder}\n"
    done = subprocess.run(["doxygen", "-"], cwd=root, input=settings, capture_output=True, text=True, timeout=120, check=False)
    return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else f"doxygen: status {done.returncode}")


def undocumented(folder):
    """A copy of the tree's headers with a function that has no description."""
    root = folder / "tree"
    shutil.copytree(ROOT / "include", root / "include")
    for name in ("Doxyfile", "docs/developer/api.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for header, call in (("larklane.h", "larklane_free_buffer"), ("message.hpp", "free_buffer")):
        path = root / "include/larklane" / header
        before, mark, after = path.read_text(encoding="utf-8").partition(f"LARKLANE_API void {call}")
        assert mark, f"{header} has no {call}"
        path.write_text(f"{before}LARKLANE_API void undocumented_{header[0]}(void);\n{mark}{after}", encoding="utf-8")
    return root


def main():
    if not shutil.which("doxygen"):
        print("skipped: no doxygen")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = warnings_of(ROOT, folder / "pages")
        if found:
            print(found)
            return 1
        assert (folder / "pages/html/index.html").exists(), "no pages"
        said = warnings_of(undocumented(folder), folder / "others")
        # The inserted function takes the description above it, so the old function has none.
        for call in ("larklane_free_buffer", "free_buffer"):
            assert f"Member {call}" in said, f"an undocumented function passes: {said}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
