"""A command that ends with the process that started it, also where that one is killed.

    python -m cluster.with_parent COMMAND...

It is asked to end (SIGTERM) then, so that it takes down what it has started.
"""

import os
import signal
import subprocess
import sys
import time

LOOK_SECONDS = 0.5


def main(command: list[str]) -> int:
    """Run the command; its exit status."""
    parent = os.getppid()
    with subprocess.Popen(command) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while child.poll() is None:
            if os.getppid() != parent:
                child.terminate()
                break
            time.sleep(LOOK_SECONDS)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
