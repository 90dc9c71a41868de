/** Of this package; test/unit/version.test.ts holds it to package.json, which a bundler may leave behind. */
export const VERSION = '0.1.0';
