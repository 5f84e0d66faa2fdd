// WebAssembly, of which a module is written here byte by byte: memory, tables, calls of both kinds, traps.
const section = (id, ...items) => [id, ...vector(items.flat())];
const vector = (bytes) => [bytes.length, ...bytes];
const [i32, func, end] = [0x7f, 0x60, 0x0b];
const bytes = [
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  // Types: (i32) -> i32, (i32, i32) -> i32.
  ...section(1, 2, func, 1, i32, 1, i32, func, 2, i32, i32, 1, i32),
  // Import of a function of JavaScript.
  ...section(2, 1, 1, 0x6d, 1, 0x66, 0, 0),
  ...section(3, 4, 0, 0, 1, 1),
  ...section(4, 1, 0x70, 0, 3),
  ...section(5, 1, 0, 1),
  // Exports: fibonacci, twice, choose, divide, memory.
  ...section(7, 5, 1, 0x66, 0, 1, 1, 0x74, 0, 2, 1, 0x63, 0, 3, 1, 0x64, 0, 4, 1, 0x6d, 2, 0),
  ...section(9, 1, 0, 0x41, 0, end, 3, 0, 1, 2),
  ...section(10, 4,
    // fibonacci n = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2), which it also stores at 4 n.
    vector([0, 0x20, 0, 0x41, 2, 0x48, 0x04, i32, 0x20, 0, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x10, 1, 0x20, 0, 0x41, 2, 0x6b, 0x10, 1, 0x6a, end, end]),
    vector([0, 0x20, 0, 0x10, 0, 0x41, 1, 0x74, end]),
    // choose table argument
    vector([0, 0x20, 1, 0x20, 0, 0x11, 0, 0, end]),
    vector([0, 0x41, 8, 0x20, 0, 0x20, 1, 0x6d, 0x36, 2, 0, 0x41, 8, 0x28, 2, 0, end])),
];
const module = new WebAssembly.Module(new Uint8Array(bytes));
const { exports } = new WebAssembly.Instance(module, { m: { f: (value) => value + 100 } });
console.log(exports.f(25), exports.t(5), [0, 1, 2].map((entry) => exports.c(entry, 10)), exports.d(42, 5));
for (const wrong of [() => exports.d(1, 0), () => exports.c(3, 1), () => new WebAssembly.Module(new Uint8Array([1]))]) {
  try {
    wrong();
  } catch (error) {
    console.log(error.name);
  }
}
console.log(new Uint32Array(exports.m.buffer)[2], exports.m.grow(2), exports.m.buffer.byteLength);
let sum = 0;
for (let index = 0; index < 200000; index++) sum = (sum + exports.d(index * 7, 3)) | 0;
console.log(sum, WebAssembly.Module.exports(module).length);
WebAssembly.compile(new Uint8Array(bytes)).then((again) => console.log(again instanceof WebAssembly.Module));
