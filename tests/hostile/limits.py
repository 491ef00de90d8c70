"""Runs ``vitpos`` on hostile files in a process with limits on memory and open files, no network, and recorded reads."""

import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ENVIRONMENT, finish, start

MEMORY = 2 << 30  # bytes above those of a process that has imported everything
SECONDS = 20  # of processor time
KEPT = [str(Path.home() / name) for name in (".cache/vitpos", ".cache/matplotlib", ".local/state/vitpos")]
CODE = [str(Path(__file__).parents[2] / name) for name in ("src", "tests")]  # torch reads source lines
READABLE = ("/usr", "/lib", "/proc", "/sys", "/dev/null", "/dev/urandom", sys.prefix, sys.base_prefix, *CODE)


@dataclass
class Limits:
    """What the process does first: limits itself, and refuses network access and reads outside the given folder."""

    folder: str
    seconds: int = SECONDS

    def __call__(self):
        """Sets the limits; called in the new process."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (self.seconds + int(time.process_time()) + 1,) * 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        allowed = (self.folder, tempfile.gettempdir() + "/vitpos-error", *READABLE, *KEPT)

        def check(event, arguments):
            if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
                os._exit(77)
            if event == "open" and isinstance(arguments[0], str | bytes):
                path = os.path.realpath(os.fsdecode(arguments[0]))
                if not path.startswith(allowed):
                    os.write(2, f"read outside: {path}\n".encode())
                    os._exit(78)

        sys.addaudithook(check)


def answer(folder, *words):
    """Runs a command on files in ``folder``; returns its result after checking that it ended within the limits."""
    with tempfile.TemporaryDirectory() as printed:
        done = finish(
            start("-m", "vitpos", *words, folder=printed, cwd=folder, env=ENVIRONMENT, before=Limits(str(folder)))
        )
    assert done.returncode not in (77, 78), f"network access or a read outside the folder: {words} {done.stderr}"
    assert done.returncode >= 0, f"killed by signal {-done.returncode}: {words}"
    assert "Traceback" not in done.stderr and "\x1b" not in done.stdout + done.stderr, done.stderr
    return done


def refused(folder, *words, match=""):
    """Asserts that a command is answered by one line on standard error and exit code 1 or 2."""
    done = answer(folder, *words)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    assert match in done.stderr, done.stderr
    return done
