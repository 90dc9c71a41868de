// Prints `N passed, N failed, N skipped` from vitest's JSON report.
// Usage: node counts.mjs <report> <exit code of the run>. Fails when there is no report to count.
import fs from 'node:fs';

const [file, status] = process.argv.slice(2);
const report = readReport();
if (report === undefined) {
  console.log('0 passed, 1 failed, 0 skipped');
  process.exitCode = 1;
} else {
  const skipped = report.numPendingTests + report.numTodoTests;
  console.log(`${report.numPassedTests} passed, ${failures(report)} failed, ${skipped} skipped`);
}

function readReport() {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

/** A file that could not be loaded has no failed test, and an unhandled error belongs to none: each counts as one. */
function failures({ numFailedTests, testResults }) {
  const unloaded = testResults.filter(
    (result) =>
      result.status === 'failed' && !result.assertionResults.some((test) => test.status === 'failed'),
  ).length;
  return Math.max(numFailedTests + unloaded, status === '0' ? 0 : 1);
}
