package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

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

// plain makes text that somebody else wrote harmless to read: no control characters, and none that turns the direction
// of what follows.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
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
