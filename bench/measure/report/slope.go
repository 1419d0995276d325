package report

import (
	"math"
	"time"
)

// Slope is a straight line through a series: its rise for each hour, and half the width of its 95 % interval.
type Slope struct{ PerHour, Error float64 }

// Flat reports whether the interval contains 0.
func (s Slope) Flat() bool { return math.Abs(s.PerHour) <= s.Error }

// slope fits a line by least squares to values at times in seconds. The interval is for errors that are independent of each
// other, which samples of memory a second apart are not quite: give it samples far apart. With fewer than three of them
// nothing is known, and the error is infinite.
func slope(seconds, values []float64) Slope {
	n := float64(len(seconds))
	if n < 3 {
		return Slope{Error: math.Inf(1)}
	}
	var meanX, meanY float64
	for i := range seconds {
		meanX, meanY = meanX+seconds[i]/n, meanY+values[i]/n
	}
	var xx, xy float64
	for i := range seconds {
		xx += (seconds[i] - meanX) * (seconds[i] - meanX)
		xy += (seconds[i] - meanX) * (values[i] - meanY)
	}
	if xx == 0 {
		return Slope{Error: math.Inf(1)}
	}
	b := xy / xx
	var residual float64
	for i := range seconds {
		d := values[i] - meanY - b*(seconds[i]-meanX)
		residual += d * d
	}
	return Slope{PerHour: 3600 * b, Error: 3600 * student(len(seconds)-2) * math.Sqrt(residual/(n-2)/xx)}
}

// student is the 97.5 % quantile of Student's distribution: exact for few degrees of freedom, the normal one's plus its first
// correction for many.
func student(degrees int) float64 {
	few := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if degrees <= len(few) {
		return few[degrees-1]
	}
	const z = 1.959964
	return z + (z*z*z+z)/(4*float64(degrees))
}

// blocks of samples make the points of a line: samples that follow one another are alike, and would claim to know more
// than they do.
const blocks = 12

// SecondHalf fits a line to the second half of a series, when what it tells of has become steady.
func SecondHalf(at []time.Duration, values []float64) Slope {
	at, values = at[len(at)/2:], values[len(values)/2:]
	n := min(blocks, len(at))
	var x, y []float64
	for i := range n {
		from, to := i*len(at)/n, (i+1)*len(at)/n
		var seconds, sum float64
		for j := from; j < to; j++ {
			seconds, sum = seconds+at[j].Seconds(), sum+values[j]
		}
		x, y = append(x, seconds/float64(to-from)), append(y, sum/float64(to-from))
	}
	return slope(x, y)
}

// Slope notes and adds the slope of a series of a run.
func (r *Report) Slope(run *Run, what, unit string, at []time.Duration, values []float64) {
	s := SecondHalf(at, values)
	verdict := "the interval contains 0"
	if !s.Flat() {
		verdict = "the interval does not contain 0"
	}
	r.Note("%s: slope of %s over the second half: %.3g %s an hour, 95 %% interval +- %.3g: %s", run.Subject, what, s.PerHour, unit, s.Error, verdict)
	run.Add("slope of "+what, unit+" an hour", s.PerHour)
}
