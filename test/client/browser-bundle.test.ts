import path from 'node:path';
import { createContext, runInContext } from 'node:vm';
import { build } from 'vite';
import { expect, test } from 'vitest';
import { hashToken } from '../../contract/credentials.ts';

const entry = path.join(import.meta.dirname, '../../client/browser.ts');

test('the browser entry bundles without a Node module or the host, and runs where there is only what browsers have', async () => {
  const result = await build({
    configFile: false,
    logLevel: 'silent',
    build: { write: false, minify: false, lib: { entry, formats: ['iife'], name: 'relay', fileName: 'phone' } },
  });
  const [bundle] = Array.isArray(result) ? result : [result];
  if (!bundle || !('output' in bundle)) throw new Error('no bundle');
  const [chunk, ...rest] = bundle.output;
  expect(rest).toEqual([]);
  expect([...chunk.imports, ...chunk.dynamicImports]).toEqual([]);
  const modules = chunk.moduleIds.map((id) => id.replace(/^.*node_modules\//, ''));
  // vite puts an empty module with this in its name where a browser has none of Node's
  expect(modules.filter((id) => /__vite-browser-external|^node:|^ws\/|tweetnacl|^jose\//.test(id))).toEqual([]);

  const browser = createContext({
    AbortController,
    crypto,
    fetch,
    setTimeout,
    clearTimeout,
    TextEncoder,
    TextDecoder,
    URL,
  });
  runInContext(`${chunk.code}\nthis.relay = relay;`, browser);
  const { token, hash } = runInContext('relay.newResumeToken()', browser) as { token: string; hash: string };
  expect(hash).toBe(hashToken(token));
  const state = runInContext(
    `relay.createPhone({
       directorOrigins: ['https://director.example'],
       relayHostId: 'abcdefghijklmnop',
       endpoint: { cellUrl: 'https://cell.example', assignmentEpoch: 1 },
       resumeTokens: [relay.newResumeToken().token],
     }).state`,
    browser,
  );
  expect(state).toBe('idle');
});
