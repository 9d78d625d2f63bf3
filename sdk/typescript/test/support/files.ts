/** Files for one test. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/** A directory that is removed after the test. */
export function newDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "hookgate-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Writes a self-signed certificate for localhost, and its key. Returns their paths. */
export function writeCertificate(directory: string, name: string): { certificate: string; key: string } {
  const files = { certificate: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) };
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  execFileSync("openssl", ["req", "-x509", ...curve, "-nodes", "-days", "2", ...subject, "-keyout", files.key, "-out", files.certificate], {
    stdio: "ignore",
  });
  return files;
}
