// Builds the viewer into the Python package: one script and one style sheet, and the licence of what is vendored.
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const out = process.argv[2] ?? fileURLToPath(new URL("../src/recollect/view/assets/", import.meta.url));
const here = (path) => fileURLToPath(new URL(path, import.meta.url));

await mkdir(out, { recursive: true });
for (const [entry, name] of [["src/main.ts", "viewer.js"], ["src/style.css", "viewer.css"]]) {
  const result = await build({
    entryPoints: [here(entry)],
    absWorkingDir: here("."),
    bundle: true,
    minify: true,
    format: "iife",
    target: ["es2022"],
    charset: "ascii",
    legalComments: "none",
    write: false,
  });
  // A closing tag inside a string would end the script element that the page puts this in.
  const text = result.outputFiles[0].text.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
  await writeFile(`${out}/${name}`, text);
}
// What it was built from, so that a test can tell without Node whether it was built again after a change.
const sum = createHash("sha256");
for (const name of ["build.js", "package-lock.json", ...(await readdir(here("src"))).sort().map((found) => `src/${found}`)]) {
  sum.update(`${name}\0`).update(await readFile(here(name)));
}
await writeFile(`${out}/sources.sha256`, `${sum.digest("hex")}\n`);
await copyFile(here("node_modules/uplot/LICENSE"), `${out}/uplot-license.txt`);
