package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks a second: USER_HZ is 100 on every Linux that Go runs on.
const ticks = 100

// Stat returns the fields of /proc/PID/stat from the third, the state, on, or nil if the process is gone. The second, the
// program's name, may hold anything, in parentheses.
func Stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	end := strings.LastIndexByte(string(b), ')')
	fields := strings.Fields(string(b[end+1:]))
	if end < 0 || len(fields) < 22 {
		return nil
	}
	return fields
}

// Usage is the CPU time that a process has taken, and its resident memory in bytes.
type Usage struct {
	CPU    time.Duration
	Memory int64
}

// UsageOf reads /proc; a process that is gone uses nothing.
func UsageOf(pid int) Usage {
	fields := Stat(pid)
	if fields == nil {
		return Usage{}
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
	return Usage{time.Duration(number(11)+number(12)) * time.Second / ticks, number(21) * int64(os.Getpagesize())}
}

// Plus adds up.
func (u Usage) Plus(o Usage) Usage { return Usage{u.CPU + o.CPU, u.Memory + o.Memory} }
