// One line for each check, and the counts at the end.
let passed = 0;
const failures = [];

// check reports whether something holds; why is said when it does not.
export function check(where, what, holds, why = '') {
  if (holds) passed++;
  else failures.push(`${where}: ${what}`);
  process.stdout.write(`${holds ? 'ok  ' : 'FAIL'} ${where}: ${what}\n`);
  if (holds) return true;
  for (const line of [why].flat()) if (line) process.stdout.write(`       ${line}\n`);
  return false;
}

// summary prints the end, and returns whether all is well. A harness that
// checked nothing has proved nothing.
export function summary() {
  const total = passed + failures.length;
  if (failures.length > 0) process.stdout.write(`\nconformance: failed:\n${failures.map((f) => `  ${f}\n`).join('')}`);
  process.stdout.write(`\nconformance: ${total} checks, ${failures.length} failed\n${passed} passed, ${failures.length} failed\n`);
  return total > 0 && failures.length === 0;
}
