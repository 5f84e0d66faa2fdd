// Much of the language and its library, with results that depend on no other input.
const crypto = require('crypto');
const zlib = require('zlib');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

function sieve(limit) {
  const composite = new Uint8Array(limit + 1);
  let count = 0;
  for (let number = 2; number <= limit; number++) {
    if (composite[number]) continue;
    count++;
    for (let multiple = number * number; multiple <= limit; multiple += number) composite[multiple] = 1;
  }
  return count;
}

if (!isMainThread) {
  parentPort.postMessage({ name: workerData, primes: sieve(100000 + workerData * 1000) });
} else {
  main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
}

class Shape {
  #scale = 2;
  constructor(sides) { this.sides = sides; }
  get area() { return this.#scale * this.sides ** 2; }
  static of(...sides) { return sides.map((side) => new this(side)); }
}
class Square extends Shape {
  get area() { return super.area + 0.5; }
}

function* fibonacci() {
  let [before, now] = [0n, 1n];
  while (true) {
    yield before;
    [before, now] = [now, before + now];
  }
}

async function* slowly(values) {
  for (const value of values) {
    await new Promise((resolve) => setImmediate(resolve));
    yield value;
  }
}

/** Called with other types once it is compiled, so that it is thrown away and compiled again. */
function add(left, right) { return left + right; }

async function main() {
  const settled = await Promise.allSettled([1, Promise.reject(new RangeError('no')), new Promise((done) => setTimeout(done, 1, 'late'))]);
  console.log(JSON.stringify(settled.map((one) => one.value ?? one.reason.message)));
  const text = 'The quick brown fox — 狐 🦊 — jumps over 12 lazy dogs on 2024-05-17.';
  console.log(text.match(/(?<year>\d{4})-(?<month>\d\d)/u).groups.year, text.replace(/(?<=\s)(\p{L})(\p{L}*)/gu, (_, first, rest) => rest + first), text.split(/\W+/).length);
  console.log(JSON.stringify(JSON.parse('{"a":[1,2.5e3,{"b":null,"c":"\\u00e9"}],"d":true}', (key, value) => (key === 'b' ? 'was null' : value)), null, 1));
  const bytes = Buffer.from(Array.from({ length: 200000 }, (_, index) => (index * index) & 255));
  for (const name of ['md5', 'sha1', 'sha256', 'sha512', 'sha3-256', 'blake2b512']) console.log(name, crypto.createHash(name).update(bytes).digest('hex').slice(0, 24));
  const key = crypto.scryptSync('password', 'salt', 32, { N: 1024 });
  const cipher = crypto.createCipheriv('aes-256-gcm', key, Buffer.alloc(12, 7));
  console.log(Buffer.concat([cipher.update(bytes.subarray(0, 1000)), cipher.final(), cipher.getAuthTag()]).toString('hex').slice(-48));
  const pair = crypto.generateKeyPairSync('ed25519');
  console.log(crypto.verify(null, bytes, pair.publicKey, crypto.sign(null, bytes, pair.privateKey)));
  for (const [pack, unpack] of [['gzipSync', 'gunzipSync'], ['deflateRawSync', 'inflateRawSync'], ['brotliCompressSync', 'brotliDecompressSync']]) {
    const packed = zlib[pack](bytes);
    console.log(pack, packed.length, zlib[unpack](packed).equals(bytes));
  }
  console.log(Shape.of(1, 2, 3).map((shape) => shape.area), Square.of(4).map((shape) => shape.area));
  const big = fibonacci();
  let last;
  for (let index = 0; index < 300; index++) last = big.next().value;
  console.log(last, last ** 3n % 1000000007n, BigInt.asUintN(64, -last));
  let sum = 0;
  for await (const value of slowly([3, 1, 2])) sum = sum * 10 + value;
  console.log(sum, [...new Set('mississippi')].sort().join(), new Map(Object.entries({ x: 1, y: [2] })));
  let total = 0;
  for (let index = 0; index < 300000; index++) total = add(total, index % 7);
  console.log(total, add('a', total), add(1.5, total), add([1], { toString: () => 'object' }), sieve(2000000));
  const numbers = Float64Array.from({ length: 50000 }, (_, index) => Math.sin(index) * 1000).sort();
  console.log(numbers[0], numbers[25000], Math.hypot(...numbers.subarray(0, 50)).toFixed(6));
  const proxy = new Proxy({}, { get: (_, name) => `<${String(name)}>`, has: () => true });
  console.log(proxy.anything, 'x' in proxy, Reflect.ownKeys({ b: 1, 2: 1, [Symbol.iterator]: 1 }).length);
  try {
    null.property;
  } catch (error) {
    console.log(error.message, error.stack.split('\n').length > 1);
  }
  try {
    (function deeper() { return deeper() + 1; })();
  } catch (error) {
    console.log(error instanceof RangeError);
  }
  console.log(eval('let [a, ...b] = [1, 2, 3]; `${a}:${b}`'), new Function('x', 'return x?.y ?? "none"')(null));
  console.log(new Date(Date.UTC(2024, 1, 29, 12)).toISOString(), new Intl.NumberFormat('en-US').format(1234567.891));
  console.log(structuredClone({ date: new Date(0), nested: new Map([[1, new Set([2])]]) }));
  const answers = await Promise.all([1, 2, 3].map((workerData) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData });
    worker.on('message', resolve).on('error', reject);
  })));
  console.log(JSON.stringify(answers));
}
