package sim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A Script is all that happened in a run: what users, admins, kubelets and the like did, every fault, and every mishap on
// the way (a request lost, an answer lost, a delay far from the ordinary, a message repeated), one a line:
//
//	jitter 423
//	0.000000000 shard s0
//	7.250311904 pod g3-0 group g3
//	9.107000021 answer-lost s0-1 store
//	14.2 calm
//
// A mishap befalls the first request, message or delay of its kind at or after its time, so that it keeps its meaning when
// other lines are taken out. Ordinary delays are made of the number behind jitter and of the name of who is delayed. After
// calm nothing goes wrong any more, and what is left of the workload has to come to its end.
type Script struct {
	Jitter uint64
	Bug    string // of package api/fault, that is to be switched on
	Finds  string // what its run finds with that bug, as Kind says it; without the bug it finds nothing
	Notes  []string
	Lines  []Line
}

// Line is one thing that happens, at a time since the start.
type Line struct {
	At    time.Duration
	Words string
}

func (s *Script) add(at time.Duration, words string) { s.Lines = append(s.Lines, Line{at, words}) }

// Write writes the script as text.
func (s *Script) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, n := range s.Notes {
		fmt.Fprintf(b, "# %s\n", n)
	}
	if s.Bug != "" {
		fmt.Fprintf(b, "bug %s\n", s.Bug)
	}
	if s.Finds != "" {
		fmt.Fprintf(b, "finds %s\n", s.Finds)
	}
	fmt.Fprintf(b, "jitter %d\n", s.Jitter)
	for _, l := range s.Lines {
		fmt.Fprintf(b, "%d.%09d %s\n", l.At/time.Second, l.At%time.Second, l.Words)
	}
	return b.Flush()
}

// ReadScript reads what Write wrote.
func ReadScript(r io.Reader) (*Script, error) {
	s := &Script{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		word, rest, _ := strings.Cut(text, " ")
		var err error
		switch word {
		case "":
		case "#":
			s.Notes = append(s.Notes, rest)
		case "bug":
			s.Bug = rest
		case "finds":
			s.Finds = rest
		case "jitter":
			s.Jitter, err = strconv.ParseUint(rest, 10, 64)
		default:
			var at time.Duration
			at, err = time.ParseDuration(word + "s")
			s.add(at, rest)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return s, nil
}

// mishaps are the kinds of lines that wait for something to befall.
var mishaps = []string{"slow", "repeat", "request-lost", "answer-lost", "very-late", "stays"}

func (l Line) verb() string {
	verb, _, _ := strings.Cut(l.Words, " ")
	return verb
}

func (l Line) isMishap() bool { return slices.Contains(mishaps, l.verb()) }

// player hands a script out.
type player struct {
	acts  []Line            // in order
	waits map[string][]wait // mishaps, by kind and whom they befall
	calm  time.Duration
}

type wait struct {
	at, lasts time.Duration
}

func newPlayer(s *Script) *player {
	p := &player{waits: map[string][]wait{}}
	for _, l := range s.Lines {
		p.calm = max(p.calm, l.At)
		switch {
		case l.verb() == "calm":
			p.calm = l.At
		case l.isMishap():
			whom, last, _ := cutLast(l.Words)
			lasts, err := time.ParseDuration(last)
			if err != nil {
				whom = l.Words
			}
			p.waits[whom] = append(p.waits[whom], wait{l.At, lasts})
		default:
			p.acts = append(p.acts, l)
		}
	}
	return p
}

func cutLast(s string) (before, last string, found bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// mishap reports whether something goes wrong, and for how long: as drawn, or as the script says.
func (w *world) mishap(drawn bool, kind, whom string, lasts time.Duration) (time.Duration, bool) {
	if w.load.quiet {
		return 0, false
	}
	if w.script != nil {
		if len(w.script.waits) == 0 {
			return 0, false
		}
		key := kind + " " + whom
		due := w.script.waits[key]
		if len(due) == 0 || w.now.Sub(w.start) < due[0].at || w.now.Sub(w.start) == due[0].at && !drawn {
			return 0, false // of several at one moment it is the one that it befell first
		}
		lasts, drawn = due[0].lasts, true
		w.script.waits[key] = due[1:]
	}
	if drawn && !w.calm {
		words := kind + " " + whom
		if lasts > 0 {
			words += " " + lasts.String()
		}
		w.record.add(w.now.Sub(w.start), words)
	}
	return lasts, drawn
}

// die makes numbers of a name: what is drawn for one thing does not hang on what is drawn for another.
type die struct {
	name  string
	state uint64
}

func (w *world) newDie(name string) *die {
	return &die{name: name, state: xxhash.Sum64String(name) ^ (w.record.Jitter * 0x9e3779b97f4a7c15)}
}

// next is splitmix64 (Steele, Lea, Flood).
func (d *die) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *die) below(n int) int { return int(d.next() % uint64(n)) }
