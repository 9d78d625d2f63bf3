#!/usr/bin/env python3
"""Builds the images by their Dockerfiles' own instructions in clean roots, without an engine, and runs what comes out as
an engine would: read-only, as 65532, without capabilities. `deploy/check/image.sh` is what a person calls.

    image.py ROOTS CACHES

ROOTS has what base images stand for, made by image.sh; CACHES keeps what a builder's caches would.
"""
import json, os, platform, re, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contained
from dockerfile import Build, Config, Stage, Wrong

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS, CACHES = (Path(argument).resolve() for argument in sys.argv[1:3])
CARGO_HOME = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WORK = CACHES / "work"
STARTED = time.monotonic()
PATIENCE = 40  # seconds, for everything that is waited for


def base(image):
    """A clean root in place of a base image, with what that image has beyond Debian."""
    name, _, tag = image.partition(":")
    if name == "rust":
        toolchain = output("rustc", "--print", "sysroot")
        version = output("rustc", "--version").split()[1]
        if tag != f"{version}-slim-bookworm":
            raise Wrong(f"{image} is not the toolchain of rust-toolchain.toml, {version}")
        # The registry's path is part of what cargo takes for unchanged, so CARGO_HOME is where this machine has it.
        # Without lines our own crates are others than the tests', which stand elsewhere: else each build would undo the other.
        env = {"PATH": f"/usr/local/rust/bin:{SYSTEM_PATH}", "CARGO_HOME": CARGO_HOME, "CARGO_PROFILE_DEV_DEBUG": "0"}
        # In place of the layers: the machine's own registry, and the repository's own target folder, so that what is built here
        # serves the tests as well.
        kept = [(f"{CARGO_HOME}/registry",) * 2, (REPOSITORY / "target", "/src/target")]
        return Stage(image, ROOTS / "rust", Config(env=env), binds=[(toolchain, "/usr/local/rust"), *kept])
    if name == "python" and re.fullmatch(r"3\.11\.\d+-slim-bookworm", tag):  # bookworm's own minor version
        env = {"PATH": SYSTEM_PATH, **{key: value for key, value in os.environ.items() if key.startswith("PIP_")}}
        files = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
        return Stage(image, ROOTS / "python", Config(env=env), binds=[(file, file) for file in files if os.path.exists(file)])
    raise Wrong(f"no clean root stands for {image}")


def cache(name, target):
    """The builds' target folder is the repository's own, see above."""
    if name.startswith("hookgate-target-"):
        return REPOSITORY / "target"
    folder = CACHES / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout.strip()


def say(text):
    print(f"== {time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


class Container:
    """What an engine would start from a stage; ends with `with`."""

    def __init__(self, stage, command=None, binds=(), env=None, probe=None):
        config = stage.config
        user, _, group = config.user.partition(":")
        if user != group or int(user) == 0:
            raise Wrong(f"{stage.name} runs as {config.user}")
        options = ["--root", str(stage.root), "--read-only", "--user", user, "--workdir", config.workdir]
        options += ["--memory", str(512 << 20)]
        for source, target in binds:
            options += ["--bind", f"{source}:{target}"]
        for key, value in {**config.env, **(env or {})}.items():
            options += ["--env", f"{key}={value}"]
        program = config.healthcheck if probe else config.entrypoint + (config.cmd if command is None else command)
        self.name = f"{stage.name}: {' '.join(program)}"
        self.command = [sys.executable, str(Path(__file__).parent / "contained.py"), *options, "--", *program]
        self.process = None

    def run(self, input=None):
        done = subprocess.run(self.command, capture_output=True, text=True, timeout=PATIENCE, input=input)
        done.stderr = done.stderr.partition("\n")[2]
        return done

    def expect(self, code=0, text=""):
        done = self.run()
        if done.returncode != code or text not in done.stdout + done.stderr:
            raise Wrong(f"{self.name}: {done.returncode} in place of {code}, or no `{text}`:\n{done.stdout}{done.stderr}")
        return done.stdout

    def __enter__(self):
        self.process = subprocess.Popen(self.command)
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "nothing"
        if kind is None and code not in (0, -15):
            raise Wrong(f"{self.name} ended with {code}")

    def wait_for(self, what, holds):
        until = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None or time.monotonic() > until:
                raise Wrong(f"{self.name}: {what} didn't come; it ended with {self.process.poll()}")
            time.sleep(0.1)


CONFIG = {
    "server": {"data_addr": "0.0.0.0:8080", "ops_addr": "0.0.0.0:9090", "admin_socket": "/run/hookgate/admin.sock"},
    "auth": {"issuers": [{"issuer": "agents", "audience": "hookgate",
                          "keys": [{"alg": "HS256", "secret": "${HOOKGATE_JWT_SECRET}"}]}]},
    "tenants": {"list": [{"id": "acme", "config": {"tenant-auth": {"allowed_tools": ["fs.*", "shell.exec"]}}}]},
    "plugins": [
        {"name": "tenant-auth", "endpoint": "unix:///run/plugins/tenant-auth.sock"},
        {"name": "python-raw", "endpoint": "unix:///run/plugins/python-raw.sock",
         "config": {"refused_tools": ["shell.exec"]}}],
    "bindings": [{"plugin": "tenant-auth", "tenant": "*", "priority": 100},
                 {"plugin": "python-raw", "tenant": "*", "priority": 200}],
    "store": {"url": "sqlite:/var/lib/hookgate/registry.db", "last_good": "/var/lib/hookgate/last-good.json"},
    "drain": {"grace": "0s", "finish": "5s"},
}


def of_tutorial(gateway):
    """The plugin that docs/sidecar-tutorial.md writes, upon the gateway's image as a reader would have it."""
    page, folder = (REPOSITORY / "docs/sidecar-tutorial.md").read_text(), WORK / "tool-guard"
    folder.mkdir()
    (folder / ".dockerignore").touch()
    for name in ("plugin.py", "Dockerfile"):
        block = re.search(rf"<!-- story: file {re.escape(name)} -->\n```\w+\n(.*?)```\n", page, re.DOTALL)
        (folder / name).write_text(block[1])
    ours = f"hookgate:{gateway.config.labels['org.opencontainers.image.version']}"
    upon = lambda image: gateway if image == ours else base(image)
    return Build(folder / "Dockerfile", folder, WORK / "tutorial", upon, cache, {}).stage()


def start_and_call(gateway, tenant_auth, python_raw, tool_guard):
    contained.own_network()
    volumes = {}
    for name in ("plugins", "state", "run"):  # as an engine makes a volume: owner and mode of the image's folder
        volumes[name] = WORK / name
        volumes[name].mkdir()
        os.chown(volumes[name], 65532, 65532)
    (WORK / "config").mkdir()
    (WORK / "config/hookgate.yaml").write_text(json.dumps(CONFIG))
    sockets = (volumes["plugins"], "/run/plugins")
    binds = [(WORK / "config", "/etc/hookgate"), sockets, (volumes["state"], "/var/lib/hookgate"), (volumes["run"], "/run/hookgate")]
    env = {"HOOKGATE_JWT_SECRET": os.urandom(32).hex()}
    of_gateway = lambda command=None, more=None, probe=False: Container(
        gateway, command, binds, {**env, **(more or {})}, probe)
    config = gateway.config.cmd[gateway.config.cmd.index("--config") + 1]

    of_gateway(["--version"]).expect(0, f"hookgate {gateway.config.labels['org.opencontainers.image.version']}")
    of_gateway(["config", "check", config]).expect(0, "no mistakes")
    of_gateway(probe=True).expect(1, "no answer")
    with of_gateway() as running, Container(tenant_auth, binds=[sockets]), Container(python_raw, binds=[sockets]):
        running.wait_for("readiness", lambda: of_gateway(probe=True).run().returncode == 0)
        token = of_gateway(["token", "mint", "--config", config, "--tenant", "acme"]).expect().strip()
        for tool, code, text in (("fs.read", 0, "CONTINUE"), ("db.drop", 3, "by tenant-auth"),
                                 ("shell.exec", 3, "by python-raw")):
            call = of_gateway(["call", "before_tool_call", "--tool", tool], {"HOOKGATE_TOKEN": token})
            call.expect(code, text)
        address = "unix:///run/plugins/tool-guard.sock"
        with Container(tool_guard, [address], [sockets]) as guard:
            guard.wait_for("its socket", (volumes["plugins"] / "tool-guard.sock").exists)
            refused = json.dumps({"refused_tools": ["orders.refund"]})
            of_gateway(["plugin", "test", address, "before_tool_call", "--tool", "orders.refund", "--tenant-config",
                        refused]).expect(3, "TOOL_NOT_ALLOWED")
        listed = of_gateway(["plugin", "list", "--addr", "unix:///run/hookgate/admin.sock"]).expect(0, "python-raw")
    print(listed)
    if not (volumes["state"] / "registry.db").exists():
        raise Wrong("the registry is not where the configuration says")


def main():
    contained.own_mounts()
    WORK.mkdir(parents=True, exist_ok=True)
    contained.mount("tmpfs", WORK, "tmpfs")
    os.umask(0o022)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    say("deploy/Dockerfile")
    made = Build(REPOSITORY / "deploy/Dockerfile", REPOSITORY, WORK / "images", base, cache,
                 {"PROFILE": "dev", "TARGETARCH": arch})
    gateway, tenant_auth = made.stage(), made.stage("tenant-auth")
    made.stage("audit-log")
    say("examples/python-raw/Dockerfile")
    python_raw = Build(REPOSITORY / "examples/python-raw/Dockerfile", REPOSITORY, WORK / "python-raw", base, cache, {}).stage()
    say("the Dockerfile of docs/sidecar-tutorial.md")
    tool_guard = of_tutorial(gateway)
    say("what came out, started")
    start_and_call(gateway, tenant_auth, python_raw, tool_guard)
    say("done")


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"image.py: {wrong}")
