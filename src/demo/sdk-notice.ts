/**
 * Keeps one notice of the AWS SDK out of the story: that its releases of 2027 need a newer Node. Which release is
 * installed is written in the lock file, and this one needs none. All other warnings are printed as ever.
 */
export function withoutSdkNotice(): void {
  const printers = process.listeners('warning');
  process.removeAllListeners('warning');
  process.on('warning', (warning) => {
    if (warning.message.startsWith('NodeVersionSupportWarning')) return;
    for (const print of printers) print(warning);
  });
}
