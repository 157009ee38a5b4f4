// Perfetto's trace processor, as its web page has it, outside of a browser: requests from a file, replies to a file.
//
//     node perfetto_engine.js FOLDER REQUESTS REPLIES
//
// FOLDER has `engine_bundle.js`, which is a web worker, and `trace_processor.wasm`.  The context below gives it what it
// takes from a worker: a place, files by XMLHttpRequest, and a port whose messages are bytes of Perfetto's protocol.
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, requests, replies] = process.argv.slice(2);

class FileRequest {
  open(_method, name) {
    this.name = name;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.name)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
}

const scope = {
  WorkerGlobalScope: class {}, XMLHttpRequest: FileRequest, TextDecoder, TextEncoder, performance, crypto, console, URL,
  setTimeout, clearTimeout, queueMicrotask, location: { href: "http://localhost/engine_bundle.js" },
};
scope.self = scope;
vm.createContext(scope);
const parts = [];
const port = { postMessage: (bytes) => parts.push(Buffer.from(bytes)) };
try {
  vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), scope);
  scope.onmessage({ data: port });
} catch (error) {
  console.error(String(error.stack).slice(-600));
  process.exit(1);
}
const stream = vm.runInContext("(size) => new Uint8Array(size)", scope)(fs.statSync(requests).size);
stream.set(fs.readFileSync(requests));
// The processor is set up in a promise of its own, which is done by then.
setTimeout(() => {
  port.onmessage({ data: stream });
  fs.writeFileSync(replies, Buffer.concat(parts));
}, 500);
