// Compiles Python with the Python that will run it:
//
//     node bytecode.mjs PYODIDE-FOLDER PLACE OPTIMIZE SOURCES.zip COMPILED.zip
//
// Each entry `name.py` comes back as `name.pyc`. Tracebacks will name its code `PLACE/name.py`. OPTIMIZE is `compile`'s.

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const COMPILE = `
import importlib.util, io, marshal, zipfile

UNCHECKED_HASH = (1).to_bytes(4, "little")  # PEP 552: the import system takes it without a look at the source

def compile_all(sources, place, optimize):
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sources.to_bytes())) as given, zipfile.ZipFile(buffer, "w") as made:
        for name in given.namelist():
            source = given.read(name)
            code = compile(source, f"{place}/{name}", "exec", dont_inherit=True, optimize=optimize)
            head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
            made.writestr(name + "c", head + marshal.dumps(code))
    return buffer.getvalue()

compile_all
`;

const [folder, place, optimize, sources, compiled] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
// With a fixed seed, the same sources give the same bytes.
const python = await loadPyodide({ env: { PYTHONHASHSEED: "0" } });
try {
  // Pyodide takes a plain array of bytes, which a Buffer of Node's is not.
  const made = python.runPython(COMPILE)(new Uint8Array(readFileSync(sources)), place, Number(optimize)).toJs();
  writeFileSync(compiled, made);
} catch (error) {
  console.error(error.message); // the stack would hold all of Pyodide's one long line
  process.exitCode = 1;
}
