"""The course's front end and its build: exercises become page fragments, the judge becomes an archive for Pyodide."""
