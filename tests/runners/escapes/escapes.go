// The attempts of a Go program: the standard library, and raw system calls through `syscall`.
// Started as `escapes TARGETS`; writes `name<TAB>escaped` or what stopped it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

var targets map[string]string
var numbers map[string]int

var errStopped = errors.New("nothing happened")

func own(name string) string { return filepath.Join(os.Getenv("SATCHEL_SCRATCH"), name) }
func in(target, name string) string { return filepath.Join(targets[target], name) }
func of(path string) string         { return "/proc/" + targets["host"] + "/" + path }

func host() int {
	number, _ := strconv.Atoi(targets["host"])
	return number
}

func number(target string) int {
	value, _ := strconv.Atoi(targets[target])
	return value
}

func read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Read(make([]byte, 64)); err != nil && err != io.EOF {
		return err
	}
	return nil
}

func list(path string) error {
	_, err := os.ReadDir(path)
	return err
}

func write(path string, flags int) error {
	file, err := os.OpenFile(path, flags|os.O_WRONLY, 0o600)
	if err == nil {
		file.Close()
	}
	return err
}

func call(name string, values ...uintptr) error {
	_, err := callFor(name, values...)
	return err
}

func callFor(name string, values ...uintptr) (uintptr, error) {
	var room [6]uintptr
	copy(room[:], values)
	got, _, code := syscall.RawSyscall6(uintptr(numbers[name]), room[0], room[1], room[2], room[3], room[4], room[5])
	if code != 0 {
		return 0, code
	}
	return got, nil
}

func text(value string) uintptr {
	pointer, _ := syscall.BytePtrFromString(value)
	kept = append(kept, pointer)
	return uintptr(unsafe.Pointer(pointer))
}

var kept []*byte

func room(size int) uintptr {
	buffer := make([]byte, size)
	kept = append(kept, &buffer[0])
	return uintptr(unsafe.Pointer(&buffer[0]))
}

func changedMode(path string) error {
	before, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, before.Mode()^0o044); err != nil {
		return err
	}
	if after, err := os.Stat(path); err != nil || after.Mode() == before.Mode() {
		return errStopped
	}
	return nil
}

func inNamespace(flags uintptr, words ...string) error {
	program := exec.Command(words[0], words[1:]...)
	program.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	return program.Run()
}

func dial(kind, address string) error {
	line, err := net.DialTimeout(kind, address, 2*time.Second)
	if err != nil {
		return err
	}
	defer line.Close()
	if kind == "udp" {
		_, err = line.Write([]byte("x"))
	}
	return err
}

type attempt struct {
	name string
	try  func() error
}

var attempts = []attempt{
	{"read-secret", func() error { return read(targets["secret"]) }},
	{"list-home", func() error { return list(targets["home"]) }},
	{"watch-home", func() error {
		line, _ := syscall.InotifyInit()
		_, err := syscall.InotifyAddWatch(line, targets["home"], syscall.IN_CREATE)
		return err
	}},
	{"read-other-skill", func() error { return read(in("other", "SKILL.md")) }},
	{"read-undeclared-workspace", func() error { return read(in("outside", "notes.txt")) }},
	{"read-accounts", func() error { return read("/etc/passwd") }},
	{"read-shared-memory-file", func() error { return read(targets["shm_file"]) }},
	{"list-sys", func() error { return list("/sys/class") }},
	{"write-skill", func() error { return write(in("skill", "planted"), os.O_CREATE) }},
	{"change-skill", func() error { return write(in("skill", "data.txt"), os.O_APPEND) }},
	{"chmod-skill", func() error { return changedMode(in("skill", "data.txt")) }},
	{"xattr-skill", func() error {
		return syscall.Setxattr(in("skill", "data.txt"), "user.x", []byte("x"), 0)
	}},
	{"set-user-id-bit", func() error { return syscall.Chmod(in("skill", "data.txt"), 0o4755) }},
	{"chmod-secret", func() error { return changedMode(targets["secret"]) }},
	{"touch-secret", func() error {
		if err := os.Chtimes(targets["secret"], time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			return err
		}
		if after, err := os.Stat(targets["secret"]); err != nil || after.ModTime().Unix() != 1 {
			return errStopped
		}
		return nil
	}},
	{"write-workspace", func() error { return write(in("workspace", "planted"), os.O_CREATE) }},
	{"delete-in-workspace", func() error { return os.Remove(in("workspace", "old.txt")) }},
	{"truncate-in-workspace", func() error { return os.Truncate(in("workspace", "kept.txt"), 0) }},
	{"write-through-link", func() error {
		if err := os.Symlink(in("outside", "through"), own("link")); err != nil {
			return err
		}
		return write(own("link"), os.O_CREATE)
	}},
	{"hard-link-secret", func() error { return os.Link(targets["secret"], own("linked")) }},
	{"rename-over", func() error {
		if err := write(own("mine"), os.O_CREATE); err != nil {
			return err
		}
		return os.Rename(own("mine"), in("outside", "notes.txt"))
	}},
	{"take-outside-file", func() error { return os.Rename(in("outside", "taken.txt"), own("taken")) }},
	{"run-outside-program", func() error { return exec.Command(in("outside", "tool")).Run() }},
	{"set-user-id-program", func() error {
		said, err := exec.Command(in("skill", "whoami")).Output()
		if err != nil {
			return err
		}
		if id, _ := strconv.Atoi(strings.TrimSpace(string(said))); id == os.Geteuid() {
			return errStopped
		}
		return nil
	}},
	{"make-device", func() error { return syscall.Mknod(own("mem"), syscall.S_IFCHR|0o600, 1<<8|1) }},
	{"open-device", func() error {
		file, err := os.OpenFile(targets["device"], os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			file.Close()
		}
		return err
	}},
	{"write-core-pattern", func() error { return write("/proc/sys/kernel/core_pattern", 0) }},
	{"write-release-agent", func() error { return write(targets["release_agent"], 0) }},
	{"env-secret", func() error {
		if os.Getenv("SATCHEL_ESCAPE_CANARY") == "" {
			return errStopped
		}
		return nil
	}},
	{"host-environ", func() error { return read(of("environ")) }},
	{"host-cmdline", func() error { return read(of("cmdline")) }},
	{"host-root", func() error { return read(of("root" + targets["secret"])) }},
	{"own-root", func() error { return read("/proc/self/root" + targets["secret"]) }},
	{"own-cwd", func() error {
		return read("/proc/self/cwd/" + strings.Repeat("../", 16) + targets["secret"])
	}},
	{"host-cwd", func() error { return list(of("cwd")) }},
	{"host-descriptor", func() error { return read(of("fd/" + targets["host_fd"])) }},
	{"host-memory-file", func() error {
		file, err := os.Open(of("mem"))
		if err != nil {
			return err
		}
		_, err = file.ReadAt(make([]byte, 8), int64(number("address")))
		return err
	}},
	{"inherited-descriptor", func() error {
		part := make([]byte, 6)
		for fd := 3; fd < 200; fd++ {
			if size, _ := syscall.Pread(fd, part, 0); size == 6 && string(part) == "canary" {
				return nil
			}
		}
		return errStopped
	}},
	{"host-memory", func() error {
		part := make([]byte, 8)
		here := [2]uintptr{uintptr(unsafe.Pointer(&part[0])), 8}
		there := [2]uintptr{uintptr(number("address")), 8}
		return call("process_vm_readv", uintptr(host()), uintptr(unsafe.Pointer(&here)), 1,
			uintptr(unsafe.Pointer(&there)), 1)
	}},
	{"signal-host", func() error { return syscall.Kill(host(), syscall.SIGCONT) }},
	{"limit-host", func() error { return call("prlimit64", uintptr(host()), 4, 0, room(16)) }},
	{"slow-host", func() error {
		now, _ := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		return syscall.Setpriority(syscall.PRIO_PROCESS, host(), 20-now)
	}},
	{"pin-host", func() error {
		mask := [16]uint64{3}
		return call("sched_setaffinity", uintptr(host()), 128, uintptr(unsafe.Pointer(&mask)))
	}},
	{"host-shared-memory", func() error { return call("shmat", uintptr(number("shm_id")), 0, 0o10000) }},
	{"tcp-connect", func() error { return dial("tcp", "127.0.0.1:"+targets["tcp"]) }},
	{"tcp-listen", func() error {
		line, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			line.Close()
		}
		return err
	}},
	{"udp-send", func() error { return dial("udp", "127.0.0.1:"+targets["udp"]) }},
	{"unix-socket", func() error { return dial("unix", targets["unix"]) }},
	{"abstract-socket", func() error { return dial("unix", "@"+targets["abstract"]) }},
	{"unix-datagram", func() error {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return syscall.Sendto(pair[0], []byte("x"), 0, &syscall.SockaddrUnix{Name: targets["unix_datagram"]})
	}},
	{"netlink-socket", func() error {
		_, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
		return err
	}},
	{"user-namespace", func() error { return inNamespace(syscall.CLONE_NEWUSER, "/usr/bin/true") }},
	{"mount-something", func() error {
		return inNamespace(syscall.CLONE_NEWUSER|syscall.CLONE_NEWNS, "/usr/bin/mount", "-t", "tmpfs", "none", "/mnt")
	}},
	{"io-uring", func() error { return call("io_uring_setup", 4, room(256)) }},
	{"kernel-keys", func() error {
		session := -3
		return call("add_key", text("user"), text("satchel-escape"), text("x"), 1, uintptr(session))
	}},
	{"bpf", func() error {
		what := [32]uint32{2, 4, 4, 1}
		return call("bpf", 0, uintptr(unsafe.Pointer(&what)), 128)
	}},
	{"userfaultfd", func() error { return call("userfaultfd", 1) }},
	{"memory-file", func() error { return call("memfd_create", text("x"), 0) }},
	{"fixed-addresses", func() error {
		if err := call("personality", 0x0040000); err != nil {
			return err
		}
		return call("personality", 0)
	}},
	{"kernel-log", func() error { return call("syslog", 10) }},
	{"trace-host", func() error { return call("ptrace", 0x4206, uintptr(host())) }},
}

func main() {
	if err := json.Unmarshal([]byte(os.Args[1]), &targets); err != nil {
		panic(err)
	}
	if err := json.Unmarshal([]byte(targets["numbers"]), &numbers); err != nil {
		panic(err)
	}
	for _, each := range attempts {
		said := "escaped"
		if err := each.try(); err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s\t%s\n", each.name, said)
	}
}
