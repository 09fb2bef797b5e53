// The attempts that a Node program can make: files, sockets, signals, and the tools it finds.
// Started as `node escapes.js TARGETS`; writes `name<TAB>escaped` or what stopped it.
"use strict";
const fs = require("fs");
const net = require("net");
const os = require("os");
const path = require("path");
const dgram = require("dgram");
const { spawnSync } = require("child_process");

const T = JSON.parse(process.argv[2]);
const scratch = process.env.SATCHEL_SCRATCH || process.cwd();
const own = (name) => path.join(scratch, name);
const read = (file) => fs.readFileSync(file).length > 0;
const stopped = (code) => {
  throw Object.assign(new Error(code || "EPERM"), { code: code || "EPERM" });
};

function changedMode(file) {
  const before = fs.statSync(file).mode;
  fs.chmodSync(file, (before ^ 0o044) & 0o777);
  return fs.statSync(file).mode !== before || stopped();
}

function tool(name, ...words) {
  const done = spawnSync(name, words, { timeout: 5000, encoding: "utf8" });
  if (done.error) throw done.error;
  if (done.status !== 0) stopped((done.stderr || "").split("\n")[0] || `exit ${done.status}`);
  return done.stdout;
}

const connect = (options) =>
  new Promise((resolve, reject) => {
    const line = net.connect(options, () => {
      line.destroy();
      resolve(true);
    });
    line.on("error", reject);
  });

const attempts = {
  "read-secret": () => read(T.secret),
  "list-home": () => fs.readdirSync(T.home).length,
  "watch-home": () => {
    fs.watch(T.home).close();
    return true;
  },
  "read-other-skill": () => read(path.join(T.other, "SKILL.md")),
  "read-undeclared-workspace": () => read(path.join(T.outside, "notes.txt")),
  "read-accounts": () => read("/etc/passwd"),
  "read-shared-memory-file": () => read(T.shm_file),
  "list-host-tmp": () => fs.readdirSync(T.root).includes("outside") || stopped(),
  "list-sys": () => fs.readdirSync("/sys/class").length,
  "write-skill": () => fs.writeFileSync(path.join(T.skill, "planted"), "") === undefined,
  "change-skill": () => fs.appendFileSync(path.join(T.skill, "data.txt"), "x") === undefined,
  "chmod-skill": () => changedMode(path.join(T.skill, "data.txt")),
  "chmod-secret": () => changedMode(T.secret),
  "touch-secret": () => {
    fs.utimesSync(T.secret, 1, 1);
    return fs.statSync(T.secret).mtimeMs === 1000 || stopped();
  },
  "write-workspace": () => fs.writeFileSync(path.join(T.workspace, "planted"), "") === undefined,
  "delete-in-workspace": () => fs.unlinkSync(path.join(T.workspace, "old.txt")) === undefined,
  "write-through-link": () => {
    fs.symlinkSync(path.join(T.outside, "through"), own("link"));
    fs.writeFileSync(own("link"), "x");
    return true;
  },
  "hard-link-secret": () => {
    fs.linkSync(T.secret, own("linked"));
    return read(own("linked"));
  },
  "copy-secret": () => {
    fs.copyFileSync(T.secret, own("copied"));
    return read(own("copied"));
  },
  "rename-over": () => {
    fs.writeFileSync(own("mine"), "x");
    fs.renameSync(own("mine"), path.join(T.outside, "notes.txt"));
    return true;
  },
  "take-outside-file": () => {
    fs.renameSync(path.join(T.outside, "taken.txt"), own("taken"));
    return true;
  },
  "run-outside-program": () => tool(path.join(T.outside, "tool")) !== null,
  "set-user-id-program": () =>
    Number(tool(path.join(T.skill, "whoami"))) !== process.geteuid() || stopped(),
  "open-device": () => fs.closeSync(fs.openSync(T.device, fs.constants.O_RDONLY | 2048)) === undefined,
  "write-core-pattern": () =>
    fs.closeSync(fs.openSync("/proc/sys/kernel/core_pattern", "r+")) === undefined,
  "write-release-agent": () => fs.closeSync(fs.openSync(T.release_agent, "r+")) === undefined,
  "env-secret": () => "SATCHEL_ESCAPE_CANARY" in process.env || stopped(),
  "host-environ": () => read(`/proc/${T.host}/environ`),
  "host-cmdline": () => read(`/proc/${T.host}/cmdline`),
  "any-environ": () => {
    for (const name of fs.readdirSync("/proc")) {
      if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
      try {
        if (read(`/proc/${name}/environ`)) return true;
      } catch {
        continue;
      }
    }
    return stopped();
  },
  "host-root": () => read(`/proc/${T.host}/root${T.secret}`),
  "own-root": () => read(`/proc/self/root${T.secret}`),
  "own-cwd": () => read(`/proc/self/cwd/${"../".repeat(16)}${T.secret}`),
  "host-cwd": () => fs.readdirSync(`/proc/${T.host}/cwd`).length,
  "host-descriptor": () => read(`/proc/${T.host}/fd/${T.host_fd}`),
  "host-memory-file": () => {
    const file = fs.openSync(`/proc/${T.host}/mem`, "r");
    return fs.readSync(file, Buffer.alloc(8), 0, 8, BigInt(T.address));
  },
  "inherited-descriptor": () => {
    const buffer = Buffer.alloc(6);
    for (let fd = 3; fd < 200; fd++) {
      try {
        if (fs.readSync(fd, buffer, 0, 6, 0) === 6 && buffer.toString() === "canary") return true;
      } catch {
        continue;
      }
    }
    return stopped();
  },
  "signal-host": () => process.kill(Number(T.host), "SIGCONT"),
  "slow-host": () => os.setPriority(Number(T.host), os.getPriority(0)) === undefined,
  "limit-host": () => tool("prlimit", "--pid", T.host, "--core").length > 0,
  "pin-host": () => tool("taskset", "-p", "3", T.host).length > 0,
  "host-shared-memory": () => tool("ipcs", "-m", "-i", T.shm_id).includes("bytes=") || stopped(),
  "tcp-connect": () => connect({ host: "127.0.0.1", port: Number(T.tcp) }),
  "tcp-listen": () =>
    new Promise((resolve, reject) => {
      const server = net.createServer();
      server.on("error", reject);
      server.listen(0, "127.0.0.1", () => server.close(() => resolve(true)));
    }),
  "udp-send": () =>
    new Promise((resolve, reject) => {
      const line = dgram.createSocket("udp4");
      line.on("error", reject);
      line.send("x", Number(T.udp), "127.0.0.1", (error) => {
        try {
          line.close();
        } catch {
          // never opened
        }
        error ? reject(error) : resolve(true);
      });
    }),
  "unix-socket": () => connect({ path: T.unix }),
  "network-interfaces": () => Object.keys(os.networkInterfaces()).length || stopped(),
  "user-namespace": () => tool("unshare", "-U", "true") !== null,
  "mount-something": () => tool("unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt") !== null,
  "change-root": () => tool("unshare", "-Ur", "chroot", "/", "/usr/bin/true") !== null,
  "make-device": () => tool("mknod", own("mem"), "c", "1", "1") !== null,
  "fixed-addresses": () => tool("setarch", "-R", "true") !== null,
  "foreign-architecture": () => tool("setarch", "i686", "true") !== null,
  "kernel-log": () => tool("dmesg", "-s", "64") !== null,
};

(async () => {
  const only = T.only ? T.only.split(",") : Object.keys(attempts);
  for (const name of only) {
    let said;
    try {
      said = (await attempts[name]()) ? "escaped" : "nothing";
    } catch (error) {
      said = String(error.code || error.message || error).replace(/\s+/g, " ");
    }
    console.log(`${name}\t${said}`);
  }
})();
