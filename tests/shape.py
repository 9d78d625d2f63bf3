#!/usr/bin/env python3
"""Prints the shape of the sources, and fails where a figure is over its bound.

    tests/shape.py [--names]     --names lists everything that counts against a bound

The bounds are those of CONTRIBUTING.md, and the rules of imports are those of docs/architecture.md.
"""

import ast
import collections
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ["gateway", "cli", "sdk/rust", "plugins", "proto", "runner", "bench"]
MAX_LINES = 500
MAX_FUNCTION = 60
MAX_PARTICIPLES = 0.03
MAX_SEVERAL_MEANINGS = 0.05
MAX_PHRASES = 5

TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union|type)\s+([A-Z]\w*)", re.M)
MODULE = re.compile(r'^(#\[cfg\((?:all\()?test\b.*\)\]\n)?(?:#\[path = "(.+)"\]\n)?(?:pub(?:\(.*\))? )?mod (\w+);', re.M)
# Words in `-ed`, `-en`, `-ing` and the like that are nouns or adjectives of the field.
NOUNS = set("""Binding Bindings Building Ceiling Ending Feed Finding Heading Lighting Listing Mapping Meaning Nothing Opening
    Ping Reading Routing Seed Setting Settings Something Speed String Thing Token Tokens Warning Weighting""".split())
IRREGULAR = set("""Asked Begun Borne Bound Broken Brought Built Chosen Done Drawn Driven Felt Found Frozen Given Gone Held Hidden
    Kept Known Laid Left Lent Lost Made Meant Met Paid Put Read Said Seen Sent Set Shown Shut Spent Spoken Stood Taken
    Thought Thrown Told Understood Won Written""".split())
PARTICLES = set("Again Away Back By Down For From In Of Off On Out Over To Up With Not Un".split())
PHRASES = ["what is there", "whoever", "in one go", "goes by", r"has the \w+ described"]

# The crates whose top-level modules may import each other in one direction only.
LAYERED = ["gateway", "cli"]
# A module of the gateway that has to exist, and the modules that it must never import; `*` is all.
NEVER = {
    "core": "*",
    "grpc": "*",
    "json": "*",
    "task": "*",
    "fs": "*",
    "routing": "upstream invoke edge dataplane snapshot control admin app telemetry",
    "upstream": "routing invoke edge dataplane snapshot control admin app store registry",
    "llm": "upstream routing invoke records edge dataplane snapshot control admin app ops store registry auth telemetry",
    "invoke": "edge dataplane snapshot control admin app store registry auth",
    "dataplane": "control admin app ops store registry upstream",
    "snapshot": "dataplane control admin app ops",
    "control": "dataplane admin app ops",
    "registry": "upstream dataplane snapshot control admin app",
    "admin": "app",
}


def sources():
    for crate in CRATES:
        for file in sorted((ROOT / crate).rglob("*.rs")):
            if "target" not in file.parts and "gen" not in file.parts:
                yield crate, file


def typescript():
    for file in sorted((ROOT / "sdk").rglob("*.ts")):
        if not {"node_modules", "gen", "dist", "build"} & set(file.parts):
            yield file


def python():
    for folder in [ROOT / "sdk" / "python", ROOT / "examples" / "python"]:
        for file in sorted(folder.rglob("*.py")):
            if not {".venv", "_proto", "build", "dist"} & set(file.parts):
                yield file


def long_functions():
    """The functions in Python with too many lines. clippy and biome look at the other languages."""
    for file in python():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= MAX_FUNCTION:
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"


def declared(file):
    """The files of the modules that a file declares, and whether each is for tests only."""
    folder = file.parent if file.stem in ("mod", "lib", "main") else file.parent / file.stem
    for is_test, path, name in MODULE.findall(file.read_text()):
        for place in [file.parent / path] if path else [folder / f"{name}.rs", folder / name / "mod.rs"]:
            yield place, bool(is_test)


@functools.cache
def test_files():
    """The files that are compiled for tests only."""
    found = set()
    left = [place for _, file in sources() for place, is_test in declared(file) if is_test]
    while left:
        file = left.pop()
        if file not in found and file.exists():
            found.add(file)
            left += [place for place, _ in declared(file)]
    return found


def without_tests(file):
    """The text of a file up to its tests; nothing of a file that is all tests."""
    if file in test_files() or "tests" in file.relative_to(ROOT).parts:
        return ""
    return re.split(r"^#\[cfg\((?:all\()?test\b.*\)\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod \w+ \{", file.read_text(), flags=re.M)[0]


def is_participle(name):
    words = re.findall(r"[A-Z][a-z0-9]*", name)
    verbs = [word for word in words if word not in PARTICLES]
    return bool(verbs) and all(
        word not in NOUNS and (word in IRREGULAR or re.fullmatch(r"\w+(ed|ing)", word)) for word in verbs
    )


def types():
    """Each crate's types: the name, and where it is defined."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for crate, file in sources():
        # An indented `type` belongs to an impl or a function.
        for match in TYPE.finditer(without_tests(file)):
            indentation = len(match.group(0)) - len(match.group(0).lstrip())
            if not (match.group(0).lstrip().startswith("type ") and indentation):
                found[crate][match.group(1)].append(file.relative_to(ROOT))
    return found


def user_visible():
    """What users read: documents, the command line, messages of errors, schemas, protos."""
    for pattern in ["README.md", "docs/*.md", "deploy/**/*.md", "proto/**/*.proto", "docs/*.json", "deploy/**/NOTES.txt"]:
        for file in sorted(ROOT.glob(pattern)):
            yield file, file.read_text()
    for crate, file in sources():
        yield file, "\n".join(re.findall(r'"(?:[^"\\]|\\.)*"|^\s*///.*(?=\n(?:\s*///.*\n)*\s*#\[arg)', without_tests(file), re.M))


def heads(group):
    """The first segment of each path in a group `{...}`, whose opening brace is cut off."""
    depth, at_head, found = 0, True, []
    for match in re.finditer(r"[{},]|\w+", group):
        token = match.group(0)
        if token == "}" and depth == 0:
            break
        depth += (token == "{") - (token == "}")
        if token == "," and depth == 0:
            at_head = True
        elif at_head and token.isidentifier():
            found.append(token)
            at_head = False
    return found


def imports(crate):
    """The other top-level modules of the crate that each of them imports, without tests."""
    graph = collections.defaultdict(set)
    source = ROOT / crate / "src"
    for file in sorted(source.rglob("*.rs")):
        module = file.relative_to(source).parts[0].removesuffix(".rs")
        if module in ("lib", "main"):
            continue
        code = re.sub(r"//.*", "", without_tests(file))
        found = graph[module]
        for match in re.finditer(r"\bcrate::(\{|\w+)", code):
            found.update(heads(code[match.end():]) if match.group(1) == "{" else [match.group(1)])
        found.discard(module)
    return dict(graph)


def circles(graph):
    """The groups of modules that import each other, directly or by way of others."""
    def reached(module):
        found, left = set(), list(graph[module])
        while left:
            following = left.pop()
            if following not in found:
                found.add(following)
                left += graph.get(following, ())
        return found

    reach = {module: reached(module) for module in graph}
    return sorted({tuple(sorted(other for other in graph if other in reach[module] and module in reach[other]))
                   for module in graph if module in reach[module]})


def main():
    names = "--names" in sys.argv[1:]
    files = [file for _, file in sources()] + list(typescript()) + list(python())
    too_long = [file for file in files if len(file.read_text().splitlines()) > MAX_LINES]
    long = list(long_functions())
    total, participles, several = 0, [], []
    for crate, defined in types().items():
        total += len(defined)
        participles += [(crate, name, where) for name, where in defined.items() if is_participle(name)]
        several += [(crate, name, where) for name, where in defined.items() if len(where) > 1]
    phrases = [(file.relative_to(ROOT), match.group(0)) for file, text in user_visible()
               for match in re.finditer("|".join(PHRASES), text, re.I)]
    graphs = {crate: imports(crate) for crate in LAYERED}
    joined = [(crate, *circle) for crate, graph in graphs.items() for circle in circles(graph)]
    forbidden = [(module, name) for module, never in NEVER.items() for name in sorted(graphs["gateway"][module])
                 if never == "*" or name in never.split()]
    figures = [
        (f"files over {MAX_LINES} lines", len(too_long), 0, too_long),
        (f"Python functions of {MAX_FUNCTION} lines or more", len(long), 0, long),
        ("types named by a participle alone", len(participles), int(total * MAX_PARTICIPLES), participles),
        ("type names with several meanings in a crate", len(several), int(total * MAX_SEVERAL_MEANINGS), several),
        ("phrases that CONTRIBUTING.md rules out", len(phrases), MAX_PHRASES, phrases),
        (f"circles of imports between {sum(map(len, graphs.values()))} top-level modules", len(joined), 0, joined),
        ("imports that docs/architecture.md forbids", len(forbidden), 0, forbidden),
    ]
    print(f"{total} type names in {len(CRATES)} crates, tests left out")
    over = False
    for title, figure, bound, found in figures:
        print(f"{title}: {figure} (at most {bound})")
        over |= figure > bound
        for one in found if names or figure > bound else []:
            print("   ", *(", ".join(map(str, part)) if isinstance(part, list) else part for part in (one if isinstance(one, tuple) else [one])))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
