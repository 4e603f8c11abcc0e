"""What the scenes on several mounts are written with."""
import os
import threading
import time

import harness


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Together:
    """Runs functions in threads; the first error of any is raised when all have ended."""

    def __init__(self, *functions):
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(f,), daemon=True) for f in functions]

    def run(self, function):
        try:
            function()
        except BaseException as e:  # noqa: B902
            self.errors.append(e)

    def wait(self, limit=harness.STEP):
        for t in self.threads:
            t.start()
        end = time.monotonic() + limit
        for t in self.threads:
            t.join(max(0.1, end - time.monotonic()))
            if t.is_alive() and not self.errors:
                raise AssertionError(f"not finished after {limit} s")
        if self.errors:
            raise self.errors[0]
