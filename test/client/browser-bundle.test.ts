import path from 'node:path';
import { build } from 'vite';
import { expect, test } from 'vitest';

const entry = path.join(import.meta.dirname, '../../client/browser.ts');

test('the browser entry bundles without a Node module, a Buffer or the host', async () => {
  const result = await build({
    configFile: false,
    logLevel: 'silent',
    build: { write: false, minify: false, lib: { entry, formats: ['es'], fileName: 'phone' } },
  });
  const [bundle] = Array.isArray(result) ? result : [result];
  if (!bundle || !('output' in bundle)) throw new Error('no bundle');
  const [chunk, ...rest] = bundle.output;
  expect(rest).toEqual([]);
  expect(chunk.imports).toEqual([]);
  expect(chunk.dynamicImports).toEqual([]);
  const modules = chunk.moduleIds.map((id) => id.replace(/^.*node_modules\//, ''));
  // vite puts an empty module with this in its name where a browser has none of Node's
  expect(modules.filter((id) => /__vite-browser-external|^node:|^ws\/|tweetnacl|^jose\//.test(id))).toEqual([]);
  expect(chunk.code).not.toMatch(/\bBuffer\.|\bprocess\.|\brequire\(/);
});
