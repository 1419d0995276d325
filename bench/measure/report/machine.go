package report

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is what the figures were measured on. It says nothing about where that is.
type Machine struct {
	OS          string            `json:"os"`
	Arch        string            `json:"arch"`
	CPU         string            `json:"cpu,omitempty"`
	Cores       int               `json:"cores"`
	MemoryBytes int64             `json:"memory_bytes,omitempty"`
	Load        float64           `json:"load"` // what else ran at the beginning: the mean over a minute
	Go          string            `json:"go"`
	Versions    map[string]string `json:"versions"` // of what takes part
}

func machine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), Versions: map[string]string{}}
	for line := range lines("/proc/cpuinfo") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	for line := range lines("/proc/meminfo") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			m.MemoryBytes = kib << 10
		}
	}
	for line := range lines("/proc/loadavg") {
		m.Load, _ = strconv.ParseFloat(strings.Fields(line + " 0")[0], 64)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "k8s.io/client-go", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc", "github.com/hashicorp/memberlist":
				m.Versions[d.Path] = d.Version
			}
		}
	}
	return m
}

// lines of a file of /proc; none where there is no such file.
func lines(path string) func(yield func(string) bool) {
	content, _ := os.ReadFile(path)
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(bytes.NewReader(content)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}
