package report

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress is one line that says where a benchmark is: written over itself on a terminal, elsewhere a line now and then. A
// nil Progress says nothing.
type Progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	begin    time.Time
	last     time.Time
	open     bool // the cursor stands behind an unfinished line
}

// NewProgress writes to out.
func NewProgress(out io.Writer) *Progress {
	f, ok := out.(*os.File)
	return &Progress{out: out, terminal: ok && term.IsTerminal(int(f.Fd())), begin: time.Now()}
}

// Say shows the line; where there is no terminal, at most every five seconds.
func (p *Progress) Say(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal && time.Since(p.last) < 5*time.Second {
		return
	}
	p.last = time.Now()
	p.write(fmt.Sprintf(format, args...), p.terminal)
}

// Line shows a line that stays.
func (p *Progress) Line(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(fmt.Sprintf(format, args...), false)
}

func (p *Progress) write(text string, open bool) {
	if p.open {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "%5.0fs  %s", time.Since(p.begin).Seconds(), text)
	if p.open = open; !open {
		fmt.Fprintln(p.out)
	}
}

// Done leaves the cursor on a line of its own.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		fmt.Fprintln(p.out)
		p.open = false
	}
}
