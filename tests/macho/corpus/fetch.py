"""Fetches packages of PyPI and npm and keeps the Mach-O images in them.

Usage: fetch.py PACKAGES.tsv DIRECTORY

The list has one package a line: registry, package, version, architecture, how many images to keep (largest first) and a
remark. A package whose folder is complete is not fetched again. Archives are removed once their images are out.
"""

import hashlib
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

MACH_O_64 = 0xFEEDFACF
UNIVERSAL = 0xCAFEBABE
PROGRAM, DYLIB, BUNDLE = 2, 6, 8
PLATFORMS = {"arm64": "macosx_26_0_arm64", "x86_64": "macosx_26_0_x86_64", "universal2": "macosx_26_0_universal2"}
PYTHON = ["--python-version", "3.13", "--implementation", "cp", "--abi", "cp313", "--abi", "abi3", "--abi", "none"]


def is_image(content):
    """Whether these are the bytes of a linked Mach-O image, of one architecture or several."""
    if len(content) < 32:
        return False
    if struct.unpack_from(">I", content)[0] == UNIVERSAL:
        count, _, _, offset = struct.unpack_from(">4I", content, 4)
        # A Java class starts with the same four bytes; its version is at the offset of the count of slices.
        if not 0 < count < 20 or offset + 32 > len(content):
            return False
        content = content[offset : offset + 32]
    magic, _, _, kind = struct.unpack_from("<4I", content)
    return magic == MACH_O_64 and kind in (PROGRAM, DYLIB, BUNDLE)


def members(archive):
    """Names and contents of the regular files of a wheel or a package of npm."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    with tarfile.open(archive) as package:
        for member in package:
            if member.isfile():
                yield member.name, package.extractfile(member).read()


def download(registry, package, version, architecture, directory):
    """Puts the archive of one package into `directory` by the registry's own client; gives its path."""
    if registry == "npm":
        command = ["npm", "pack", "--silent", f"{package}@{version}", "--pack-destination", directory]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--platform", PLATFORMS[architecture]]
        command += [*PYTHON, "--dest", directory, f"{package}=={version}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (archive,) = pathlib.Path(directory).iterdir()
    return archive


def keep(archive, count, folder):
    """Writes the `count` largest images of `archive` into `folder`, each content once."""
    images = {}
    for name, content in members(archive):
        if is_image(content):
            images.setdefault(hashlib.sha256(content).hexdigest(), (name, content))
    largest = sorted(images.values(), key=lambda image: (-len(image[1]), image[0]))[:count]
    for name, content in largest:
        path = folder / name.replace("/", "__")
        path.write_bytes(content)
    return len(largest)


def lines(path):
    """The packages of a list."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def main():
    """Fetches every package of the list; gives 1 when one is not available."""
    packages, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    failures = 0
    for registry, package, version, architecture, count, *_ in lines(packages):
        folder = directory / f"{package.strip('@').replace('/', '-')}-{version}-{architecture}"
        if folder.is_dir():
            continue
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as work:
            try:
                archive = download(registry, package, version, architecture, work)
            except (subprocess.CalledProcessError, ValueError) as error:
                print(f"fetch: {package} {version}: {error}", file=sys.stderr)
                failures += 1
                continue
            with tempfile.TemporaryDirectory(dir=directory) as images:
                kept = keep(archive, int(count), pathlib.Path(images))
                shutil.copytree(images, folder)
        print(f"{package} {version} {architecture}: {kept} images", flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
