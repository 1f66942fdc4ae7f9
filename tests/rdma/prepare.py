#!/usr/bin/env python3
"""Prepare the guest of tests/rdma, once, in .deps/rdma-vm: a Linux kernel of Debian's and an initramfs with the modules that it needs.

Neither root nor installing a kernel is needed: the package is fetched and unpacked. A prepared guest is kept until Debian has another
version, or this folder wants other modules.

Exit status: 0 it is there, 77 it can't be had here (and why). With --check nothing is done: 0 nothing to do, 1 something.
"""

import argparse
import gzip
import hashlib
import lzma
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEPS = pathlib.Path(os.environ.get("LARKLANE_DEPS_DIR", ROOT / ".deps"))
FOLDER = DEPS / "rdma-vm"
SKIP = 77

# The host's files; the device, how a program reaches it, its checksums; links between guests and within one, and faults on them.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay",
           "rdma_rxe", "rdma_ucm", "ib_umad", "crc32_generic", "dummy",
           "virtio_net", "veth", "sch_netem")  # fmt: skip
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "modprobe": "kmod",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
LISTS = pathlib.Path("/var/lib/apt/lists")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Unavailable(Exception):
    """The guest can't be had here; the text says why."""


def program(name: str) -> str:
    """@return where it is. Raises Unavailable"""
    found = shutil.which(name, path=PATH)
    if not found:
        raise Unavailable(f"no {name} (package {PROGRAMS[name]})")
    return found


def newest() -> str | None:
    """@return version of the kernel that Debian's lists here offer, like 6.1.0-49-amd64; None: unknown"""
    if not shutil.which("apt-cache"):
        return None
    shown = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Depends: linux-image-(\d\S*)", shown)
    return found[1] if found else None


def stamp(version: str) -> str:
    """The parts that a prepared guest was made of."""
    made_of = (HERE / "initramfs.sh").read_bytes() + " ".join(MODULES).encode()
    return f"{version} {hashlib.sha256(made_of).hexdigest()}"


def prepared() -> str | None:
    """@return the stamp of the guest that is there"""
    try:
        return (FOLDER / "stamp").read_text()
    except OSError:
        return None


def is_current() -> bool:
    """Nothing is to be done: the present guest is the one that would be made."""
    there = prepared()
    if not there or there != stamp(there.split()[0]):
        return False
    try:  # asking takes seconds
        if LISTS.stat().st_mtime < (FOLDER / "stamp").stat().st_mtime:
            return True
    except OSError:
        return True
    if newest() not in (None, there.split()[0]):
        return False
    (FOLDER / "stamp").touch()
    return True


def fetch(folder: str) -> str:
    """Unpacks the newest kernel's package into `folder`. @return its version. Raises Unavailable"""
    said = ""
    for is_again in (False, True):
        if is_again:  # old lists name packages that are gone
            subprocess.run([program("apt-get"), "update"], capture_output=True, check=False)
        if not (version := newest()):
            said = "apt knows no package linux-image-amd64"
            continue
        done = subprocess.run([program("apt-get"), "download", f"linux-image-{version}"], cwd=folder, capture_output=True, text=True,
                              check=False)
        if done.returncode == 0 and (archives := list(pathlib.Path(folder).glob("*.deb"))):
            subprocess.run([program("dpkg-deb"), "-x", archives[0], folder], check=True)
            subprocess.run([program("depmod"), "-b", folder, version], check=True)
            return version
        said = f"linux-image-{version} can't be fetched: {(done.stderr.strip() or '?').splitlines()[-1]}"
    raise Unavailable(said)


def module_files(version: str, folder: str) -> list[pathlib.Path]:
    """Files of MODULES and of those that they need, in the order in which they can be loaded."""
    files: dict[str, None] = {}
    for module in MODULES:
        shown = subprocess.run([program("modprobe"), "-d", folder, "-S", version, "--show-depends", module],
                               capture_output=True, text=True, check=True).stdout
        files.update(dict.fromkeys(re.findall(r"^insmod (\S+)", shown, re.MULTILINE)))
    return [pathlib.Path(file) for file in files]


def archive_member(name: str, mode: int, data: bytes = b"") -> bytes:
    """A member of a cpio archive (newc)."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def initramfs(modules: list[pathlib.Path]) -> bytes:
    members = [
        archive_member("init", 0o100755, (HERE / "initramfs.sh").read_bytes()),
        archive_member("busybox", 0o100755, pathlib.Path(program("busybox")).read_bytes()),
        archive_member("modules", 0o40755),
    ]
    order = []
    for path in modules:
        data = path.read_bytes()
        if path.suffix == ".xz":
            data, path = lzma.decompress(data), path.with_suffix("")
        members.append(archive_member(f"modules/{path.name}", 0o100644, data))
        order.append(path.name)
    members.append(archive_member("modules/order", 0o100644, "\n".join(order).encode()))
    members.append(archive_member("TRAILER!!!", 0))
    return gzip.compress(b"".join(members), 1)


def prepare() -> None:
    """Raises Unavailable."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"on {platform.machine()} nobody has tried it")
    for name in PROGRAMS:
        program(name)
    with tempfile.TemporaryDirectory(prefix="larklane-kernel-") as folder:
        version = fetch(folder)
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "stamp").unlink(missing_ok=True)
        shutil.copy(f"{folder}/boot/vmlinuz-{version}", FOLDER / "vmlinuz")
        (FOLDER / "initramfs").write_bytes(initramfs(module_files(version, folder)))
    (FOLDER / "stamp").write_text(stamp(version))  # last: all is there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether something is to be done")
    if parser.parse_args().check:
        return 0 if is_current() else 1
    if is_current():
        return 0
    before = prepared()
    try:
        prepare()
    except Unavailable as why:
        print(f"prepare: {why}" + (f"; the guest stays as it was ({before.split()[0]})" if before and prepared() else ""))
        return 0 if before and prepared() else SKIP
    print(f"prepare: {FOLDER}: Linux {prepared().split()[0]}, {sum(f.stat().st_size for f in FOLDER.iterdir()) >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
