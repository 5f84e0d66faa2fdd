// A server and its clients in one process: streams, sockets, headers.
const http = require('http');
const crypto = require('crypto');
const { pipeline } = require('stream/promises');
const zlib = require('zlib');

const server = http.createServer(async (request, response) => {
  if (request.method === 'POST') {
    const hash = crypto.createHash('sha256');
    await pipeline(request, hash);
    response.setHeader('x-length', request.headers['content-length'] ?? 'chunked');
    return response.end(hash.digest('hex'));
  }
  const count = Number(new URL(request.url, 'http://localhost').searchParams.get('lines'));
  response.writeHead(count ? 200 : 404, { 'content-encoding': 'gzip' });
  const gzip = zlib.createGzip();
  gzip.pipe(response);
  for (let line = 0; line < count; line++) gzip.write(`line ${line} of ${count}\n`);
  gzip.end();
});

function ask(agent, options, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ agent, port: server.address().port, host: '127.0.0.1', ...options }, async (response) => {
      const chunks = [];
      const stream = response.headers['content-encoding'] ? response.pipe(zlib.createGunzip()) : response;
      for await (const chunk of stream) chunks.push(chunk);
      resolve([response.statusCode, Buffer.concat(chunks).toString(), response.headers['x-length']]);
    });
    request.on('error', reject);
    request.end(body);
  });
}

server.listen(0, '127.0.0.1', async () => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const asked = Array.from({ length: 100 }, (_, index) => ask(agent, { path: `/?lines=${index % 10 * 20}` }));
  const digest = crypto.createHash('sha256');
  for (const answer of await Promise.all(asked)) digest.update(JSON.stringify(answer));
  console.log(digest.digest('hex'));
  for (let size = 1; size <= 1 << 20; size *= 32) console.log(await ask(agent, { method: 'POST', path: '/' }, Buffer.alloc(size, size & 255)));
  console.log((await fetch(`http://127.0.0.1:${server.address().port}/?lines=2`)).status);
  agent.destroy();
  server.closeAllConnections();
  server.close(() => console.log('closed'));
});
