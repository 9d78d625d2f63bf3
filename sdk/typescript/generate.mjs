// Generates src/gen from the .proto files. `node generate.mjs --check` fails where what is in git differs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const committed = join(here, "src");
const bin = join(here, "node_modules/.bin");

function generate(out) {
  const plugin = { local: join(bin, "protoc-gen-es"), out: "gen", opt: ["target=ts", "import_extension=js"] };
  const template = JSON.stringify({ version: "v2", clean: true, plugins: [plugin] });
  const packages = ["types", "plugin", "gateway", "host"].flatMap((name) => ["--path", `hookgate/${name}`]);
  const args = ["generate", "--template", template, "--output", out, ...packages];
  const { status } = spawnSync(join(bin, "buf"), args, { cwd: join(here, "../../proto"), stdio: "inherit" });
  if (status !== 0) process.exit(1);
}

function files(folder) {
  const entries = readdirSync(join(folder, "gen"), { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return new Map(paths.map((path) => [path.slice(folder.length), readFileSync(path, "utf8")]));
}

if (process.argv[2] === "--check") {
  const fresh = mkdtempSync(join(tmpdir(), "hookgate-gen-"));
  generate(fresh);
  const [before, after] = [files(committed), files(fresh)];
  rmSync(fresh, { recursive: true });
  const different = [...new Set([...before.keys(), ...after.keys()])].filter((path) => before.get(path) !== after.get(path));
  if (different.length > 0) {
    console.error(`${different.join(", ")}: differ from the .proto files. Run \`npm run generate\`.`);
    process.exit(1);
  }
} else {
  generate(committed);
}
