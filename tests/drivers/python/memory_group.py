"""A memory control group of version 1 or 2 for a server: its limit, its peak, and the processes that the kernel killed."""

import contextlib
import os
import time
from pathlib import Path

# A group stays busy for a moment after its last process has ended.
REMOVAL_SECONDS_MAX = 5


class NoGroups(Exception):
    """No memory control group can be made here."""


class MemoryGroup:
    """A group whose processes have `bytes_max` of memory, page cache included, and no swap."""

    def __init__(self, bytes_max):
        self.folder, self.is_v2 = make()
        try:
            limit, swap = ("memory.max", "memory.swap.max") if self.is_v2 else V1_LIMITS
            (self.folder / limit).write_text(str(bytes_max))
            with contextlib.suppress(OSError):
                # Without swap, or without its accounting, there is nothing to forbid.
                (self.folder / swap).write_text("0" if self.is_v2 else str(bytes_max))
        except OSError:
            self.folder.rmdir()
            raise

    def launcher(self):
        """The beginning of a command that runs the rest of it in this group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def peak_bytes(self):
        """The most memory in use so far, page cache included; `None` if the kernel does not say."""
        try:
            name = "memory.peak" if self.is_v2 else "memory.max_usage_in_bytes"
            return int((self.folder / name).read_text())
        except OSError:
            return None

    def kills(self):
        """How many processes of the group the kernel has killed for memory."""
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        lines = (self.folder / name).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def remove(self):
        deadline = time.monotonic() + REMOVAL_SECONDS_MAX
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


V1_LIMITS = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")


def make():
    """A new group in the first place where this process may make one, and whether it is of version 2."""
    for parent, is_v2 in places():
        folder = parent / f"rekindle-test-memory-{os.getpid()}-{time.monotonic_ns()}"
        try:
            if is_v2:
                (parent / "cgroup.subtree_control").write_text("+memory")
            folder.mkdir()
        except OSError:
            continue
        if (folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")).exists():
            return folder, is_v2
        folder.rmdir()
    raise NoGroups


def places():
    """The folders of mounted hierarchies with memory, those of this process first."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, point, kind, options, *_ in mounts:
        is_v2 = kind == "cgroup2"
        if is_v2 or (kind == "cgroup" and "memory" in options.split(",")):
            wanted = "" if is_v2 else "memory"
            for _, controllers, path in own:
                if wanted in controllers.split(","):
                    yield Path(point) / path.strip("/"), is_v2
            yield Path(point), is_v2
