// Package page lays out text for people: lines as wide as their terminal, and no wider than is read well. Words are
// never broken.
//
// It knows no commands and no objects. What programs read (JSON, YAML, `-o wide`) does not come here.
package page

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Columns of a page.
const (
	Widest    = 120 // also on a wider terminal: prose is not read better there
	narrowest = 40  // a terminal that is narrower breaks lines itself
)

// Width returns how wide a line may be on an output.
func Width(out io.Writer) int {
	if f, is := out.(*os.File); is {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return min(max(width, narrowest), Widest)
		}
	}
	return Widest
}

// Fold returns text whose lines are no wider than so many columns, as far as their words allow. What does not fit
// goes on below the last column of the line, which two spaces set apart from the one before, or further left if that
// leaves little room.
func Fold(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		foldLine(&b, strings.TrimRight(line, " \n"), width)
		b.WriteByte('\n')
	}
	return b.String()
}

func foldLine(b *strings.Builder, line string, width int) {
	if utf8.RuneCountInString(line) <= width {
		b.WriteString(line)
		return
	}
	const apart, little = "  ", 30
	indented := len(line) - len(strings.TrimLeft(line, " "))
	last := indented // where the last column begins
	if i := strings.LastIndex(line, apart); i >= indented {
		last = i + len(apart)
	}
	hang := utf8.RuneCountInString(line[:last])
	column := hang
	b.WriteString(line[:last])
	if hang > width-little {
		hang = min(indented+8, width/2)
	}
	for i, word := range strings.Fields(line[last:]) {
		wide := utf8.RuneCountInString(word)
		switch {
		case i == 0 && (column+wide <= width || column == hang):
		case i > 0 && column+1+wide <= width:
			b.WriteByte(' ')
			column++
		default:
			b.WriteString("\n" + strings.Repeat(" ", hang))
			column = hang
		}
		b.WriteString(word)
		column += wide
	}
}

// Prose joins the lines of each paragraph, so that they can be folded anew. Indented lines, such as examples, are
// left alone.
func Prose(text string) string {
	var b strings.Builder
	open := false // the line before may go on
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		flows := line != "" && line[0] != ' '
		switch {
		case open && flows:
			b.WriteByte(' ')
		case b.Len() > 0:
			b.WriteByte('\n')
		}
		b.WriteString(line)
		open = flows
	}
	return b.String()
}
