"""A Rekindle node with its own folder, for tests: started, killed, started again."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request
from pathlib import Path

READY_SECONDS_MAX = 60


def program():
    """The program under test: `REKINDLE_PROGRAM`, or the product of `make build`."""
    named = os.environ.get("REKINDLE_PROGRAM")
    if named:
        return named
    cache = os.environ.get("REKINDLE_CACHE", str(Path.home() / ".cache" / "rekindle"))
    target = os.environ.get("CARGO_TARGET_DIR", str(Path(cache) / "target"))
    return str(Path(target) / "dist" / "rekindle")


class Node:
    """One server process. Ports are chosen by the system and read from its log lines."""

    ready = "Server ready"
    # The beginning of the command, before the program.
    launcher = ()

    def __init__(self, *flags, directory=None):
        self.flags = flags
        self.own_directory = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="rekindle-test-"))
        self.process = None
        self.driver_port = 0
        self.http_port = 0
        self.cluster_port = 0
        self.lines = []

    def start(self):
        """Starts the process and returns when it reports that it is ready."""
        ports = ["--driver-port", str(self.driver_port), "--http-port", str(self.http_port)]
        ports += ["--cluster-port", str(self.cluster_port)]
        command = [*self.launcher, program(), *self.place(), *ports, *self.flags]
        self.lines = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        timer = threading.Timer(READY_SECONDS_MAX, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                self.lines.append(line)
                self._note(line)
                if self.ready in line:
                    threading.Thread(target=self._drain, args=(self.process,), daemon=True).start()
                    return self
        finally:
            timer.cancel()
        raise RuntimeError("the node did not become ready:\n" + "".join(self.lines))

    def place(self):
        """The command line options for the data folder."""
        return ["--directory", str(self.directory / "data")]

    def _note(self, line):
        if found := re.search(r"client driver connections on port (\d+)", line):
            self.driver_port = int(found[1])
        if found := re.search(r"intracluster connections on port (\d+)", line):
            self.cluster_port = int(found[1])
        if found := re.search(r"administrative HTTP connections on port (\d+)", line):
            self.http_port = int(found[1])

    def _drain(self, process):
        for line in process.stdout:
            self.lines.append(line)

    def kill(self):
        """`kill -9`; waits until the process has ended."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Sends SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=READY_SECONDS_MAX)

    def http(self, path):
        """Status and body of a GET on the HTTP port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def health(self):
        status, body = self.http("/health")
        return status, json.loads(body)

    def remove(self):
        """Stops the process and deletes the folder."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)


class Proxy(Node):
    """A server process without data."""

    ready = "Proxy ready, "

    def place(self):
        return ["proxy"]


@contextlib.contextmanager
def node(*flags, directory=None):
    """A running node for the length of a `with` block."""
    running = Node(*flags, directory=directory)
    try:
        yield running.start()
    finally:
        running.remove()
