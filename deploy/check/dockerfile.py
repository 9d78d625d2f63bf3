"""Reads a Dockerfile and carries its instructions out in plain folders, for machines without a container engine.

It knows the instructions and flags that this repository's Dockerfiles use; anything else is an error, never skipped.
What a base image is, and where a build's caches are, the caller says: it must not know.
"""
import json, os, re, shlex, shutil, subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import contained

VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


class Wrong(Exception):
    """What is wrong, for a person."""


@dataclass
class Instruction:
    line: int
    word: str
    flags: list
    rest: str


@dataclass
class Config:
    """What an image says of itself."""
    env: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list = field(default_factory=list)
    cmd: list = field(default_factory=list)
    exposed: list = field(default_factory=list)
    healthcheck: list = field(default_factory=list)

    def copied(self):
        return replace(self, env=dict(self.env), labels=dict(self.labels), exposed=list(self.exposed))


@dataclass
class Stage:
    name: str
    root: Path
    config: Config
    args: dict = field(default_factory=dict)
    binds: list = field(default_factory=list)  # (from, to) while its commands run: what the base image would have


def parse(path):
    instructions, text, started = [], "", 0
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        started = started or number
        text += line.rstrip("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        word, _, rest = text.strip().partition(" ")
        flags, rest = [], rest.strip()
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            flags.append(flag[2:])
            rest = rest.strip()
        instructions.append(Instruction(started, word.upper(), flags, rest))
        text, started = "", 0
    return instructions


def expand(text, values):
    def value(match):
        name = match[1] or match[3]
        if values.get(name):
            return values[name]
        if match[2] is not None:
            return match[2]
        if name in values:
            return ""
        raise Wrong(f"${name} is not set where it is used")
    return VARIABLE.sub(value, text)


class Ignored:
    """The patterns of a .dockerignore: the last that fits decides, and what fits a folder fits all in it."""

    def __init__(self, path):
        lines = [line.strip() for line in path.read_text().splitlines()]
        self.patterns = []
        for line in filter(lambda line: line and not line.startswith("#"), lines):
            pattern = line.lstrip("!").strip("/")
            expression = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
            self.patterns.append((line.startswith("!"), pattern, re.compile(expression + "(?:/.*)?")))

    def __call__(self, path):
        ignored = False
        for keeps, _, expression in self.patterns:
            if expression.fullmatch(path):
                ignored = not keeps
        return ignored

    def may_hold(self, folder):
        """Whether something in an ignored folder isn't."""
        return any(keeps and pattern.startswith(folder + "/") for keeps, pattern, _ in self.patterns)

    def files(self, context):
        for at, folders, files in os.walk(context):
            inside = os.path.relpath(at, context)
            named = lambda name: name if inside == "." else f"{inside}/{name}"
            folders[:] = [f for f in folders if not self(named(f)) or self.may_hold(named(f))]
            yield from (named(file) for file in files if not self(named(file)))


class Build:
    """One Dockerfile. Stages are made once, when they are needed first."""

    def __init__(self, path, context, work, base, cache, args):
        """`base(image)` gives a Stage, `cache(id, target)` a folder; `args` are build arguments. `work` is emptied by the caller."""
        self.context, self.work, self.base, self.cache, self.args = Path(context), Path(work), base, cache, args
        self.made, self.stages, self.globals = {}, [], {}
        for instruction in parse(path):
            if instruction.word == "FROM":
                words = expand(instruction.rest, self.globals).split()
                name = words[2] if len(words) == 3 and words[1].lower() == "as" else str(len(self.stages))
                self.stages.append((name, words[0], []))
            elif self.stages:
                self.stages[-1][2].append(instruction)
            elif instruction.word == "ARG":
                self.declare(instruction, self.globals)
            else:
                raise Wrong(f"line {instruction.line}: {instruction.word} before FROM")

    def declare(self, instruction, values):
        name, has_default, default = instruction.rest.partition("=")
        known = {**self.globals, **values}
        values[name] = self.args.get(name, expand(default, known) if has_default else self.globals.get(name, ""))

    def stage(self, name=None):
        name = name or self.stages[-1][0]
        if name not in self.made:
            entry = next((entry for entry in self.stages if entry[0] == name), None)
            if entry is None:
                raise Wrong(f"there is no stage {name}")
            self.made[name] = self.make(*entry)
        return self.made[name]

    def make(self, name, image, instructions):
        below = None
        if any(entry[0] == image for entry in self.stages):
            below = self.stage(image)
        elif image != "scratch":
            below = self.base(image)
        root = self.work / name / "root"
        root.mkdir(parents=True)
        stage = Stage(name, root, Config())
        if below:
            stage.config, stage.binds = below.config.copied(), below.binds
            upper, meta = self.work / name / "upper", self.work / name / "meta"
            upper.mkdir(), meta.mkdir()
            layers = f"lowerdir={below.root},upperdir={upper},workdir={meta}"
            contained.mount("overlay", root, "overlay", options=layers)
        for instruction in instructions:
            carry_out = getattr(self, f"do_{instruction.word.lower()}", None)
            if carry_out is None:
                raise Wrong(f"line {instruction.line}: {instruction.word} is not known here")
            print(f"   {name}: {instruction.word} {instruction.rest[:110]}", flush=True)
            try:
                carry_out(stage, instruction)
            except Wrong as wrong:
                raise Wrong(f"line {instruction.line}: {wrong}") from None
        return stage

    def known(self, stage):
        return {**stage.args, **stage.config.env}

    def path(self, stage, text):
        """Where a path of the image is in our folders."""
        return stage.root / os.path.join(stage.config.workdir, text).lstrip("/")

    def do_arg(self, stage, instruction):
        self.declare(instruction, stage.args)

    def pairs(self, stage, instruction):
        return dict(word.split("=", 1) for word in shlex.split(expand(instruction.rest, self.known(stage))))

    def do_env(self, stage, instruction):
        stage.config.env.update(self.pairs(stage, instruction))

    def do_label(self, stage, instruction):
        stage.config.labels.update(self.pairs(stage, instruction))

    def do_workdir(self, stage, instruction):
        stage.config.workdir = os.path.join(stage.config.workdir, expand(instruction.rest, self.known(stage)))
        self.path(stage, "").mkdir(parents=True, exist_ok=True)

    def do_user(self, stage, instruction):
        stage.config.user = expand(instruction.rest, self.known(stage))

    def do_expose(self, stage, instruction):
        stage.config.exposed += [int(port) for port in instruction.rest.split()]

    def do_entrypoint(self, stage, instruction):
        stage.config.entrypoint, stage.config.cmd = json.loads(instruction.rest), []

    def do_cmd(self, stage, instruction):
        stage.config.cmd = json.loads(instruction.rest)

    def do_healthcheck(self, stage, instruction):
        word, _, command = instruction.rest.partition(" ")
        if word != "CMD":
            raise Wrong("a health check begins with CMD here")
        stage.config.healthcheck = json.loads(command)

    def do_copy(self, stage, instruction):
        options = dict(flag.split("=", 1) for flag in instruction.flags)
        *sources, target = expand(instruction.rest, self.known(stage)).split()
        owner = tuple(map(int, options.pop("chown", "0:0").split(":")))
        origin = options.pop("from", None)
        if options:
            raise Wrong(f"COPY --{next(iter(options))} is not known here")
        to = self.path(stage, target)
        for source in sources:
            if origin:
                at = self.stage(origin).root / source.lstrip("/")
                if not at.exists():
                    raise Wrong(f"{source} is not in the stage {origin}")
                files = None
            else:
                at = (self.context / source).resolve()
                files = self.of_context(source)
            if at.is_dir():
                copy_folder(at, to, files, owner)
            else:
                into = to / at.name if target.endswith(("/", ".")) else to
                copy_file(at, into, owner)

    def of_context(self, source):
        """The context's files that are sent to a builder, below the source and named from there."""
        ignored = Ignored(self.context / ".dockerignore")
        prefix = "" if source in (".", "./") else source.rstrip("/")
        found = [file for file in ignored.files(self.context) if not prefix or file == prefix or file.startswith(prefix + "/")]
        if not found:
            raise Wrong(f"{source} is not in the context, or .dockerignore keeps it out")
        return [os.path.relpath(file, prefix or ".") for file in found]

    def do_run(self, stage, instruction):
        contained_env = {**stage.args, **stage.config.env}
        mounts = list(stage.binds)
        for flag in instruction.flags:
            kind, _, text = flag.partition("=")
            options = dict(part.split("=", 1) for part in expand(text, self.known(stage)).split(","))
            if kind != "mount" or options.get("type") != "cache" or not {"id", "target"} <= options.keys():
                raise Wrong(f"RUN --{flag} is not known here")
            if "from" in options:  # what the cache begins as; ours has begun
                begins = self.stage(options["from"]).root / options.get("source", "").lstrip("/")
                if not begins.is_dir():
                    raise Wrong(f"{options.get('source')} is no folder in the stage {options['from']}")
            mounts.append((self.cache(options["id"], options["target"]), options["target"]))

        def inside():
            contained.own_mounts()
            contained.kernel_files(stage.root)
            for source, target in mounts:
                contained.bind(source, f"{stage.root}{target}")
            os.chroot(stage.root)
            os.chdir(stage.config.workdir)
            user, group = map(int, stage.config.user.split(":"))
            os.setgroups([]), os.setgid(group), os.setuid(user)

        words = json.loads(instruction.rest) if instruction.rest.startswith("[") else ["/bin/sh", "-c", instruction.rest]
        done = subprocess.run(words, preexec_fn=inside, env=contained_env, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Wrong(f"the command ended with {done.returncode}: {instruction.rest}")


def copy_folder(source, target, files, owner):
    """With `files` those alone, else everything."""
    target.mkdir(parents=True, exist_ok=True)
    if files is None:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        if owner != (0, 0):
            os.chown(target, *owner)
            for at, folders, names in os.walk(target):
                for name in folders + names:
                    os.lchown(os.path.join(at, name), *owner)
        return
    for file in files:
        copy_file(source / file, target / file, owner)


def copy_file(source, target, owner):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
    os.lchown(target, *owner)
