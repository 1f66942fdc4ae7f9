#!/usr/bin/env python3
"""The worked example of CONTRIBUTING.md: half_policy.patch adds a policy to a copy of the tree, and the policy test passes there.

  half_policy.py BUILD [CMAKE_OPTION...]    BUILD: folder for the copy

Exit status: 0 passed, 1 failed, 77 git is missing.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = pathlib.Path(__file__).with_name("half_policy.patch")
SKIP = 77
# One layer and its test: nothing that needs an MPI or a network's library.
SMALL = ["-DLARKLANE_BUILD_TOOLS=OFF", "-DLARKLANE_TEST_KINDS=unit", *(f"-DLARKLANE_WITH_{part}=OFF" for part in ("MPI", "OFI", "VERBS"))]


def copy_tree(target: pathlib.Path) -> None:
    """All files that are or could be committed; of an unpacked archive, all but builds. An earlier copy goes, its build stays."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if name.split("/")[0] not in ("build", ".deps", ".git")]
    for old in target.iterdir() if target.exists() else []:
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run(*command: str, **options: object) -> str:
    """@return its output"""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}")
    return str(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder for the copy")
    arguments, options = parser.parse_known_args()
    if not shutil.which("git"):
        print("skipped: no git")
        return SKIP
    patch = PATCH.read_text()
    if f"```diff\n{patch}```\n" not in (ROOT / "CONTRIBUTING.md").read_text():
        print(f"CONTRIBUTING.md:1: does not show {PATCH.relative_to(ROOT)} as it is")
        return 1
    tree = arguments.build.resolve() / "tree"
    copy_tree(tree)
    # The copy may lie in a repository, and git would take the names as relative to it.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent), "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    run("git", "apply", str(PATCH), cwd=tree, env=environment)
    run(sys.executable, "scripts/dev/options_doc.py", cwd=tree)
    page = " ".join((tree / "docs/user/options.md").read_text().split())
    assert "`half`: two groups;" in page and "| half |" in page, "the options page does not list the policy"
    build = tree / "build/half"
    run("cmake", "-S", str(tree), "-B", str(build), *SMALL, *options, env=environment)
    run("cmake", "--build", str(build), "--target", "part_policy_test", "--parallel", "2", env=environment)
    said = run(str(build / "tests/unit/part_policy_test"))
    assert "[       OK ] PartPolicy.HalfMakesTwoGroups" in said, said
    print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
