package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"
)

func gangURL(namespace, name string) string {
	return "/gangs/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func queueURL(name, namespace string) string {
	return "/queues/" + url.PathEscape(name) + "?n=" + url.QueryEscape(namespace)
}

// ago says how long ago something was, in words that change seldom.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return ""
	case d < 10*time.Second:
		return "now"
	case d < 2*time.Minute:
		d = d.Truncate(10 * time.Second)
	}
	return duration.HumanDuration(d)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// plain makes a page that has text of others in it harmless to read: no control characters, and none that turns the
// direction of what follows.
func plain(page []byte) []byte {
	bad := func(r rune, size int) bool {
		switch {
		case r < utf8.RuneSelf:
			return r < ' ' && r != '\n' && r != '\t' || r == 0x7f
		case r == utf8.RuneError:
			return size == 1
		}
		return r < 0xa0 || r == '\u061c' || r >= '\u2000' && r <= '\u2069' && (unicode.Is(unicode.Bidi_Control, r) ||
			r == '\u2028' || r == '\u2029')
	}
	var out []byte // nil as long as nothing was bad
	for i := 0; i < len(page); {
		r, size := rune(page[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(page[i:])
		}
		isBad := bad(r, size)
		if isBad && out == nil {
			out = append(make([]byte, 0, len(page)+64), page[:i]...)
		}
		switch {
		case isBad:
			out = utf8.AppendRune(out, unicode.ReplacementChar)
		case out != nil:
			out = append(out, page[i:i+size]...)
		}
		i += size
	}
	if out == nil {
		return page
	}
	return out
}

// number reads an amount for a picture; what cannot be read is nothing.
func number(amount string) float64 {
	if amount == "" || len(amount) > 40 {
		return 0
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil || q.Format == resource.DecimalExponent {
		return 0
	}
	return q.AsApproximateFloat64()
}

// percent is a length in a picture, from 0 to 100 in steps of a tenth.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(int(min(1, max(0, part/whole))*1000))/10, 'f', -1, 64)
}

// parseQuantity reads an amount that is short.
func parseQuantity(text string) (resource.Quantity, error) {
	if len(text) > 40 {
		return resource.Quantity{}, fmt.Errorf("an amount of %d characters", len(text))
	}
	return resource.ParseQuantity(text)
}

// spanOf says how long something took.
func spanOf(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
