"""Walls around a process, of the Linux kernel's making; needs the standard library only.

    fence(folder)       namespaces: no network, no other process, every file system read-only but an
                        own one in `folder`, in memory. What is started from here lives in them, too
    keep_to_itself()    it ends with its parent, shows nobody its memory, and takes little
    shut(folder)        for good: it reads Python and the libraries, writes below `folder`
                        (Landlock), has no capability, and makes no socket and no process (seccomp)

They raise OSError where the kernel, or what the machine runs in, does not let them.
Sources: namespaces(7), landlock(7), seccomp(2), mount_setattr(2), capset(2).
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from pathlib import Path

SECONDS, MEMORY, FILE, DISK, FILES = 10, 1 << 30, 1 << 20, 1 << 26, 1 << 12
USER, MOUNTS, IPC, HOSTNAME, PIDS, NETWORK = (
    *(0x10000000, 0x00020000, 0x08000000),  # CLONE_NEW* of sched.h
    *(0x04000000, 0x20000000, 0x40000000),
)
PRIVATE, RECURSIVE, NO_SUID, NO_DEVICES = 1 << 18, 1 << 14, 2, 4  # MS_* of mount.h
AT_FDCWD, AT_RECURSIVE, READ_ONLY = -100, 0x8000, 1
DIE_WITH_PARENT, DUMPABLE, NO_NEW_PRIVILEGES, SECCOMP = 1, 4, 38, 22  # PR_* of prctl.h
MOUNT_SETATTR, LANDLOCK = 442, 444  # these numbers are the same on every machine
ABI = 3  # of Landlock, Linux 6.2: the first that also keeps files from being cut short
EXECUTE, WRITE, READ, LIST = 1, 2, 4, 8  # LANDLOCK_ACCESS_FS_*: a file, but for the last
READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

# Audit architecture, and numbers of calls: what makes sockets, processes and namespaces; keys,
# which the kernel would keep; what no answer needs of it (bpf, perf_event_open, userfaultfd). Then
# clone.
CALLS = {
    "x86_64": (
        0xC000003E,
        (*(41, 57, 58, 101, 165, 272, 308, 310, 311), *(248, 249, 250), *(321, 298, 323)),
        56,
    ),
    "aarch64": (
        0xC00000B7,
        (*(198, 117, 40, 97, 268, 270, 271), *(217, 218, 219), *(280, 241, 282)),
        220,
    ),
}
EVERYWHERE = (425, 428, 429, 430, 438, 442)  # io_uring, the newer calls of mounting, pidfd_getfd
CLONE3, CLONE_THREAD, X32 = 435, 0x10000, 0x40000000
ALLOW, DENY, MISSING, KILL = 0x7FFF0000, 0x50000 | 1, 0x50000 | 38, 0x80000000

libc = ctypes.CDLL(None, use_errno=True)


def fence(folder: str) -> None:
    """Put this process in namespaces of its own. The first process that is started afterwards is
    the init of the new namespaces: when it ends, so does every other in them.
    """
    if sys.platform != "linux":
        raise OSError(f"this is {sys.platform}, not Linux")
    user, group = os.getuid(), os.getgid()
    _done("unshare", libc.unshare(USER | MOUNTS | IPC | HOSTNAME | PIDS | NETWORK))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _done("mount", libc.mount(None, b"/", None, PRIVATE | RECURSIVE, None))
    attributes = struct.pack("4Q", READ_ONLY, 0, 0, 0)
    _call(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes))
    flags, options = NO_SUID | NO_DEVICES, f"size={DISK},nr_inodes={FILES},mode=700".encode()
    _done("mount", libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options))
    os.chdir(folder)


def keep_to_itself() -> None:
    """End this process with the one that started it, show its memory to no other, and limit what it
    and those that it starts take: time, memory, the size of a file.
    """
    _done("prctl", libc.prctl(DIE_WITH_PARENT, 9))
    _done("prctl", libc.prctl(DUMPABLE, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def shut(folder: str) -> None:
    """Shut this process in for good: Landlock, no capabilities, seccomp."""
    _done("prctl", libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _landlock(folder)
    header, none = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0, 0, 0, 0, 0, 0)
    _done("capset", libc.capset(header, none))
    _seccomp()


def _landlock(folder: str) -> None:
    if (abi := _call(LANDLOCK, None, 0, 1)) < ABI:
        raise OSError(f"Landlock is of version {abi} here, and {ABI} is the first that will do")
    everything = (1 << (16 if abi > 4 else 15)) - 1
    rules = _call(LANDLOCK, struct.pack("Q", everything), 8, 0)
    reading = EXECUTE | READ | LIST
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    allowed = dict.fromkeys((*READABLE, *python), reading)
    allowed |= dict.fromkeys(DEVICES, READ | WRITE) | {folder: everything}
    for path, rights in allowed.items():
        if not Path(path).exists():
            continue
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = rights if Path(path).is_dir() else rights & (EXECUTE | READ | WRITE)
        _call(LANDLOCK + 1, rules, 1, struct.pack("=Qi", rights, handle), 0)
        os.close(handle)
    _call(LANDLOCK + 2, rules, 0)
    os.close(rules)


def _seccomp() -> None:
    """A filter of calls, in the instructions of BPF: (code, jump if true, if false, operand)."""
    if platform.machine() not in CALLS:
        raise OSError(f"the numbers of calls on {platform.machine()} are not known here")
    architecture, forbidden, clone = CALLS[platform.machine()]
    load, equal, above, some, end = 0x20, 0x15, 0x35, 0x45, 0x06
    code = [
        *((load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, KILL)),
        *((load, 0, 0, 0), (above, 0, 1, X32), (end, 0, 0, KILL)),
        *((equal, 0, 1, CLONE3), (end, 0, 0, MISSING)),  # the C library then asks for clone
    ]
    for number in (*forbidden, *EVERYWHERE):
        code += [(equal, 0, 1, number), (end, 0, 0, DENY)]
    code += [
        *((equal, 0, 3, clone), (load, 0, 0, 16), (some, 1, 0, CLONE_THREAD)),
        *((end, 0, 0, DENY), (end, 0, 0, ALLOW)),
    ]
    text = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    _done("prctl", libc.prctl(SECCOMP, 2, program))


def _call(number: int, *arguments: object) -> int:
    return _done(f"call {number}", libc.syscall(number, *arguments))


def _done(what: str, status: int) -> int:
    """The result of a call. Raises OSError where it failed."""
    if status < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return status
