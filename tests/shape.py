#!/usr/bin/env python3
"""Prints the shape of the sources, and fails where a figure is over its bound.

    tests/shape.py [--names]     --names lists every type that counts against a bound

The bounds are those of CONTRIBUTING.md. Circles between modules are a test's matter: `module_graph`.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ["gateway", "cli", "sdk/rust", "plugins", "proto", "bench"]
MAX_LINES = 500
MAX_PARTICIPLES = 0.03
MAX_SEVERAL_MEANINGS = 0.05
MAX_PHRASES = 5

TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union|type)\s+([A-Z]\w*)", re.M)
# Words in `-ed`, `-en`, `-ing` and the like that are nouns or adjectives of the field.
NOUNS = set("""Binding Bindings Building Ceiling Ending Feed Finding Heading Lighting Listing Mapping Meaning Nothing Opening
    Ping Reading Routing Seed Setting Settings Something Speed String Thing Token Tokens Warning Weighting""".split())
IRREGULAR = set("""Asked Begun Borne Bound Broken Brought Built Chosen Done Drawn Driven Felt Found Frozen Given Gone Held Hidden
    Kept Known Laid Left Lent Lost Made Meant Met Paid Put Read Said Seen Sent Set Shown Shut Spent Spoken Stood Taken
    Thought Thrown Told Understood Won Written""".split())
PARTICLES = set("Again Away Back By Down For From In Of Off On Out Over To Up With Not Un".split())
PHRASES = ["what is there", "whoever", "in one go", "goes by", r"has the \w+ described"]


def sources():
    for crate in CRATES:
        for file in sorted((ROOT / crate).rglob("*.rs")):
            if "target" not in file.parts and "gen" not in file.parts:
                yield crate, file


def without_tests(file):
    """The text of a file up to its tests; nothing of a file that is all tests."""
    relative = file.relative_to(ROOT)
    if file.stem == "tests" or file.stem.endswith("_tests") or "tests" in relative.parts or "testing" in relative.parts:
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


def main():
    names = "--names" in sys.argv[1:]
    too_long = [file for _, file in sources() if len(file.read_text().splitlines()) > MAX_LINES]
    total, participles, several = 0, [], []
    for crate, defined in types().items():
        total += len(defined)
        participles += [(crate, name, where) for name, where in defined.items() if is_participle(name)]
        several += [(crate, name, where) for name, where in defined.items() if len(where) > 1]
    phrases = [(file.relative_to(ROOT), match.group(0)) for file, text in user_visible()
               for match in re.finditer("|".join(PHRASES), text, re.I)]
    figures = [
        (f"files over {MAX_LINES} lines", len(too_long), 0, too_long),
        ("types named by a participle alone", len(participles), int(total * MAX_PARTICIPLES), participles),
        ("type names with several meanings in a crate", len(several), int(total * MAX_SEVERAL_MEANINGS), several),
        ("phrases that CONTRIBUTING.md rules out", len(phrases), MAX_PHRASES, phrases),
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
