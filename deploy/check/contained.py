#!/usr/bin/env python3
"""Runs a program as a container engine would, without one: a root of its own (read-only if asked), its own view of
mounts, one user, no capabilities and no way to new ones, and a limit of memory. Needs to be root; what it starts isn't.

    contained.py --root DIR [--read-only] [--user 65532] [--memory BYTES] [--bind FROM:TO[:ro]]... [--tmpfs TO]...
                 [--env NAME=VALUE]... [--workdir DIR] -- PROGRAM ARGUMENT...

The process id stays that of the program. Its standard error begins with one line of JSON that says what was done.
"""
import argparse, contextlib, ctypes, json, os, resource, struct, sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
DEVICES = ("null", "zero", "full", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())} (this needs root, and a machine that lets root do it)")


def mount(source, target, kind=None, flags=0, options=None):
    text = lambda value: None if value is None else str(value).encode()
    check(libc.mount(text(source), text(target), text(kind), flags, text(options)), f"mount of {target}")


def own_mounts():
    """From here on this process's mounts are nobody else's, and go away with it and its children."""
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount(None, "/", flags=MS_REC | MS_PRIVATE)


def own_network():
    """A network with nothing but a loopback, so that every port is free."""
    import fcntl, socket
    check(libc.unshare(CLONE_NEWNET), "unshare")
    with socket.socket() as asked:
        fcntl.ioctl(asked, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS: up


def bind(source, target, read_only=False):
    """Makes the place where there is none, as an engine does."""
    source, target = Path(source), Path(target)
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount(None, target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def kernel_files(root):
    """What every container has: /proc, and the devices that are no hardware."""
    root = Path(root)
    (root / "proc").mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc")
    (root / "dev").mkdir(exist_ok=True)
    mount("tmpfs", root / "dev", "tmpfs", options="mode=755")
    for device in DEVICES:
        bind(f"/dev/{device}", root / "dev" / device)


def limit_memory(most):
    """By a control group where the machine has them for memory, else by the address space; says which."""
    for base, sign, limit, name in (("/sys/fs/cgroup/memory", "cgroup.procs", "memory.limit_in_bytes", "cgroup v1"),
                                    ("/sys/fs/cgroup", "cgroup.controllers", "memory.max", "cgroup v2")):
        if not Path(base, sign).exists():
            continue
        for old in Path(base).glob("hookgate-*"):
            if not Path("/proc", old.name.partition("-")[2]).exists():  # of a process that has ended
                with contextlib.suppress(OSError):
                    old.rmdir()
        group = Path(base, f"hookgate-{os.getpid()}")
        try:
            group.mkdir(exist_ok=True)
            for file, value in ((limit, most), ("cgroup.procs", os.getpid())):
                with open(group / file, "r+") as opened:
                    opened.write(str(value))
            return name
        except OSError:
            continue
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return "address space"


def give_up_rights(user):
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel knows no more of them
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)  # from 0 to another: the effective and permitted capabilities go, too


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--user", type=int, default=65532)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("--tmpfs", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--workdir", default="/")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("contained.py has to be run by root: it makes mounts and gives rights up")

    root = Path(asked.root).resolve()
    own_mounts()
    mount(root, root, flags=MS_BIND | MS_REC)
    kernel_files(root)
    for file in ("/etc/hosts", "/etc/resolv.conf"):
        if os.path.exists(file):
            bind(file, f"{root}{file}", read_only=True)
    for entry in asked.tmpfs:
        (root / entry.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("tmpfs", f"{root}{entry}", "tmpfs", options=f"mode=750,uid={asked.user},gid={asked.user}")
    for entry in asked.bind:
        source, target, *rest = entry.split(":")
        bind(source, f"{root}{target}", read_only=rest == ["ro"])
    if asked.read_only:
        mount(None, root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    memory = limit_memory(asked.memory) if asked.memory else None
    os.chroot(root)
    os.chdir(asked.workdir)
    give_up_rights(asked.user)
    done = {"message": "contained", "memory": memory, "read_only": asked.read_only, "user": os.getuid()}
    print(json.dumps(done), file=sys.stderr, flush=True)
    environment = dict(entry.split("=", 1) for entry in asked.env)
    os.execvpe(asked.command[0], asked.command, {"PATH": "/usr/local/bin", **environment})


if __name__ == "__main__":
    main()
