package security

import (
	"os/exec"
	"syscall"
)

// dieWithUs lets the kernel end a child when its parent dies.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
