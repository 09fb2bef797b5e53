// A program that does, in order, what its arguments say: the Node one of four that agree.
const fs = require("fs");
const { spawn } = require("child_process");

const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

function put(descriptor, data) {
  let at = 0;
  while (at < data.length) {
    try {
      at += fs.writeSync(descriptor, data, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      pause(1);
    }
  }
}

const sleeper = (detached) => spawn("/bin/sleep", ["60"], { detached, stdio: "inherit" }).unref();
const held = [];

const acts = {
  read() {
    const buffer = Buffer.alloc(65536);
    for (;;) {
      let count;
      try {
        count = fs.readSync(0, buffer);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        pause(1);
        continue;
      }
      if (count === 0 || buffer[count - 1] === 10) return;
    }
  },
  out: (hex, times) => put(1, Buffer.from(hex.repeat(Number(times)), "hex")),
  err: (hex, times) => put(2, Buffer.from(hex.repeat(Number(times)), "hex")),
  flood(descriptor) {
    for (;;) put(Number(descriptor), Buffer.alloc(65536, "x"));
  },
  drip() {
    for (;;) {
      put(1, Buffer.from("x"));
      pause(10);
    }
  },
  sleep: (ms) => pause(Number(ms)),
  exit: (code) => process.reallyExit(Number(code)),
  kill(number) {
    process.kill(process.pid, Number(number));
    pause(1000);
  },
  deaf() {
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(name, () => {});
  },
  close: (descriptor) => fs.closeSync(Number(descriptor)),
  daemon: () => sleeper(true),
  hop() {
    const script = 'while :; do (sleep 0.01; :) & sleep 0.001; done';
    spawn("/bin/sh", ["-c", `(${script}) &`], { detached: true, stdio: "inherit" }).unref();
    pause(100);
  },
  burst(count) {
    for (let i = 0; i < Number(count); i++) sleeper(false);
    pause(60000);
  },
  memory(megabytes) {
    for (let i = 0; i < Number(megabytes); i++) held.push(Buffer.alloc(1 << 20, "x"));
  },
  file: (size) => fs.writeFileSync("large", Buffer.alloc(Number(size), "x")),
  files(count) {
    for (let i = 0; i < Number(count); i++) fs.openSync("/dev/null", "r");
  },
};

for (const word of process.argv.slice(2)) {
  const [name, ...values] = word.split(":");
  acts[name]?.(...values);
}
process.reallyExit(0);
