/**
 * The reference of the SDK and of the runner. Whatever it lacks is an error: a public type that isn't exported, a member without a comment,
 * a link to nothing.
 */
import { readFileSync } from "node:fs";
import { OptionDefaults } from "typedoc";

/** The sources of what a package exports. */
function entryPoints(folder) {
  const { exports } = JSON.parse(readFileSync(new URL(`${folder}/package.json`, import.meta.url), "utf8"));
  return Object.values(exports).map(({ types }) => `${folder}/${types.replace("./dist/", "src/").replace(/\.d\.ts$/, ".ts")}`);
}

export default {
  name: "Hookgate for TypeScript",
  entryPoints: ["..", "../../typescript-runner"].flatMap(entryPoints),
  tsconfig: "tsconfig.json",
  out: "../build/reference",
  readme: "none",
  disableSources: true,
  excludeInternal: true,
  excludePrivate: true,
  // The build checks the types, and takes less time.
  skipErrorChecking: true,
  // The generated messages have it.
  blockTags: [...OptionDefaults.blockTags, "@generated"],
  packagesRequiringDocumentation: ["@hookgate/sdk", "@hookgate/runner"],
  validation: { notExported: true, invalidLink: true, notDocumented: true },
  treatWarningsAsErrors: true,
};
