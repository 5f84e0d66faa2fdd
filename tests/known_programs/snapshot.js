// What a snapshot holds: objects, classes, functions, and a main function that runs when it is loaded.
const { setDeserializeMainFunction } = require('v8').startupSnapshot;
class Counter {
  count = 0;
  next() { return ++this.count; }
}
const counter = new Counter();
counter.next();
const table = new Map([['a', /b+/g], ['c', Buffer.from('d')]]);
setDeserializeMainFunction(() => {
  console.log(counter.next(), [...'abbbc'.matchAll(table.get('a'))].length, table.get('c').toString(), process.argv.length);
});
