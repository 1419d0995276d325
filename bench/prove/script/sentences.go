package script

import (
	"cmp"
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sentences.txt is the table of the sentences that more than two scripts would print. Scripts print their codes, with
// the values that a sentence has, so that a change of words is a change of the code that says them and of one row.
//
//go:embed sentences.txt
var table string

// sentence is one row of the table.
type sentence struct {
	pkg     string         // the package whose scripts print it
	code    string         // what they print
	words   string         // as in the table
	literal string         // its longest part without a value
	match   *regexp.Regexp // a group for each value
}

// values is what may stand for a value: {n} a number or an amount, {q} a quoted name, {w} a word, {s} anything, as
// little as possible.
var values = map[string]string{
	"{n}": `(-?[0-9][0-9A-Za-zµ.]*)`,
	"{q}": `"([^"]*)"`,
	"{w}": `([^\s;,()]*[^\s;,():])`,
	"{s}": `(.*?)`,
}

var (
	sentences = parse(table)
	value     = regexp.MustCompile(`\{[nqws]\}`)
	run       = regexp.MustCompile(`(?:\b[a-z]{2,},? ){4,}[a-z]{2,}\b`)
	plain     = regexp.MustCompile(`\b(?:an?|are|be|for|has|have|in|is|it|its|no|not|of|than|the|to|was|were)\b`)
)

// parse reads rows "code  words" in sections "# package".
func parse(text string) (out []sentence) {
	pkg := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "# "); is || line == "" {
			pkg = cmp.Or(name, pkg)
			continue
		}
		code, words, _ := strings.Cut(line, " ")
		s := sentence{pkg: pkg, code: code, words: strings.TrimSpace(words)}
		for _, part := range value.Split(s.words, -1) {
			if len(part) > len(s.literal) {
				s.literal = part
			}
		}
		pattern := regexp.QuoteMeta(s.words)
		for name, of := range values {
			pattern = strings.ReplaceAll(pattern, regexp.QuoteMeta(name), of)
		}
		s.match = regexp.MustCompile(pattern)
		out = append(out, s)
	}
	// A sentence comes before one that is a part of it.
	slices.SortStableFunc(out, func(a, b sentence) int { return cmp.Compare(len(b.words), len(a.words)) })
	return out
}

// coder puts codes into what the scripts of one package print, and takes note of what it meets.
type coder struct {
	pkg  string
	seen map[string]bool            // words of rows
	in   map[string]map[string]bool // runs of words that no row has, and the scripts that print them
}

// newCoder returns the coder of the package in a folder.
func newCoder(dir string) *coder {
	c := &coder{pkg: filepath.Base(dir), seen: map[string]bool{}, in: map[string]map[string]bool{}}
	for _, s := range sentences {
		if strings.HasSuffix(filepath.ToSlash(dir), "/"+s.pkg) {
			c.pkg = s.pkg
		}
	}
	return c
}

// line returns a line with the codes of its sentences.
func (c *coder) line(script, line string) string {
	for _, s := range sentences {
		if !strings.Contains(line, s.literal) {
			continue
		}
		line = s.match.ReplaceAllStringFunc(line, func(text string) string {
			c.seen[s.words] = true
			if of := s.match.FindStringSubmatch(text)[1:]; len(of) > 0 {
				return fmt.Sprintf("%s(%s)", s.code, strings.Join(of, ", "))
			}
			return s.code
		})
	}
	for _, words := range run.FindAllString(line, -1) {
		if !plain.MatchString(words) {
			continue
		}
		if c.in[words] == nil {
			c.in[words] = map[string]bool{}
		}
		c.in[words][script] = true
	}
	return line
}

// problems returns what the table has that no script prints, and what many print that it does not have.
func (c *coder) problems() (out []string) {
	for _, s := range sentences {
		if s.pkg == c.pkg && !c.seen[s.words] {
			out = append(out, fmt.Sprintf("no script of %s prints %s any more, %q: change or delete the row",
				s.pkg, s.code, s.words))
		}
	}
	for words, scripts := range c.in {
		if len(scripts) > mostScripts {
			out = append(out, fmt.Sprintf("%d scripts of %s print %q: give the sentence a row", len(scripts), c.pkg, words))
		}
	}
	slices.Sort(out)
	return out
}

// mostScripts is how many scripts may print a sentence that has no code.
const mostScripts = 2
