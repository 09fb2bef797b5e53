// A program that does, in order, what its arguments say: the Go one of four that agree.
package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var held [][]byte

func must(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func put(fd int, data []byte) {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		if err == syscall.EINTR {
			continue
		}
		must(err)
		data = data[n:]
	}
}

func start(own bool, argv ...string) {
	command := exec.Command(argv[0], argv[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: own}
	must(command.Start())
}

func act(name string, v []string) {
	switch name {
	case "read":
		buffer := make([]byte, 65536)
		for {
			n, err := syscall.Read(0, buffer)
			if err == syscall.EINTR {
				continue
			}
			if n <= 0 || buffer[n-1] == '\n' {
				return
			}
		}
	case "out", "err":
		data, err := hex.DecodeString(v[0])
		must(err)
		put(map[string]int{"out": 1, "err": 2}[name], bytes.Repeat(data, number(v[1])))
	case "flood":
		for {
			put(number(v[0]), bytes.Repeat([]byte("x"), 65536))
		}
	case "drip":
		for {
			put(1, []byte("x"))
			time.Sleep(10 * time.Millisecond)
		}
	case "sleep":
		time.Sleep(time.Duration(number(v[0])) * time.Millisecond)
	case "exit":
		os.Exit(number(v[0]))
	case "kill":
		// The runtime turns some signals into a status of its own; this makes it abort instead.
		debug.SetTraceback("crash")
		syscall.Kill(os.Getpid(), syscall.Signal(number(v[0])))
		time.Sleep(time.Second)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	case "close":
		must(syscall.Close(number(v[0])))
	case "daemon":
		start(true, "/bin/sleep", "60")
	case "hop":
		start(true, "/bin/sh", "-c", "(while :; do (sleep 0.01; :) & sleep 0.001; done) &")
		time.Sleep(100 * time.Millisecond)
	case "burst":
		for i := 0; i < number(v[0]); i++ {
			start(false, "/bin/sleep", "60")
		}
		time.Sleep(time.Minute)
	case "memory":
		for i := 0; i < number(v[0]); i++ {
			held = append(held, bytes.Repeat([]byte("x"), 1<<20))
		}
	case "file":
		must(os.WriteFile("large", bytes.Repeat([]byte("x"), number(v[0])), 0o600))
	case "files":
		for i := 0; i < number(v[0]); i++ {
			_, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
			must(err)
		}
	}
}

func main() {
	for _, word := range os.Args[1:] {
		parts := strings.Split(word, ":")
		act(parts[0], parts[1:])
	}
}
