import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '../..');
const guide = readFileSync(path.join(root, 'docs/client.md'), 'utf8');

test.each(['desktop', 'phone'])('the %s of the guide is the example that compiles and is tested', (name) => {
  const example = readFileSync(path.join(root, `client/examples/${name}.ts`), 'utf8');
  expect(guide).toContain(`\`\`\`ts\n${example.replace("'../index.ts'", "'orca-relay/client'")}\`\`\``);
});
