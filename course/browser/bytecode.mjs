// Compiles Python with the Python that will run it: `node bytecode.mjs PYODIDE-FOLDER PLACE SOURCES.zip COMPILED.zip`.
//
// Each entry `name.py` comes back as `name.pyc`. Tracebacks will name its code `PLACE/name.py`.

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const COMPILE = `
import importlib.util, io, marshal, zipfile

UNCHECKED_HASH = (1).to_bytes(4, "little")  # PEP 552: the import system takes it without a look at the source

def compile_all(sources, place):
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sources.to_bytes())) as given, zipfile.ZipFile(buffer, "w") as made:
        for name in given.namelist():
            source = given.read(name)
            code = compile(source, f"{place}/{name}", "exec", dont_inherit=True)
            head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
            made.writestr(name + "c", head + marshal.dumps(code))
    return buffer.getvalue()

compile_all
`;

const [folder, place, sources, compiled] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
// With a fixed seed, the same sources give the same bytes.
const python = await loadPyodide({ env: { PYTHONHASHSEED: "0" } });
try {
  // Pyodide takes a plain array of bytes, which a Buffer of Node's is not.
  const made = python.runPython(COMPILE)(new Uint8Array(readFileSync(sources)), place).toJs();
  writeFileSync(compiled, made);
} catch (error) {
  console.error(error.message); // the stack would hold all of Pyodide's one long line
  process.exitCode = 1;
}
