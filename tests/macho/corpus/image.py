"""Gives one published image: image.py IMAGES.tsv DIRECTORY NAME

The list has one image a line: name, registry, package, version, architecture, member of the archive, SHA-256. The image is
fetched once; for a universal file only the slice of the architecture is kept, so that every test handles one.
"""

import fcntl
import hashlib
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "emulator"))

from fetch import download, lines, members  # noqa: E402
from image import slice_of  # noqa: E402


def main():
    """Fetches the image unless it is there; 1 when its digest is not the listed one."""
    list_path, directory, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    directory.mkdir(parents=True, exist_ok=True)
    (entry,) = [fields for fields in lines(list_path) if fields[0] == wanted]
    name, registry, package, version, platform, member, digest = entry
    path = directory / name
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several tests may run this at once
        if path.exists():
            return 0
        with tempfile.TemporaryDirectory(dir=directory) as work:
            archive = download(registry, package, version, platform, work)
            content = next(content for found, content in members(archive) if found == member)
        architecture = "x86_64" if name.endswith("-x86_64") else "arm64"
        content = bytes(slice_of(content, architecture))
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            print(f"{name}: SHA-256 {found} instead of {digest}", file=sys.stderr)
            return 1
        partial = path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
